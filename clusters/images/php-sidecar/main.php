#!/usr/bin/php
<?php
// The sidecar of the PHP libraries: speaks docs/sidecar.md with one worker process of the bench.
//
// It is given the name of a lock and, in its environment, where the worker listens. It connects,
// says hello, and serves until that connection ends; then it ends at once, as if killed. Whatever
// calls a library of PHP waits for it, so each client is a process of its own, as it is where PHP
// serves requests; this one passes lines on between them and the worker. It is the first process of
// its container, so none of them outlives it.
//
// Guarantees: one answer per request; what a library throws and its client does not map is unknown,
// in the library's words. A client that ends unasked ends all. Does not guarantee that a call ends.
declare(strict_types=1);

const PROTOCOL = 1;
const READ_BYTES = 65536;
// In the environment: the worker's address, and the word that it knows its own sidecar by.
const WORKER = 'LOCKBENCH_SIDECAR_WORKER';
const WORD = 'LOCKBENCH_SIDECAR_WORD';

// What is said to a request. Times are nanoseconds of CLOCK_MONOTONIC.
const RELEASED = ['said' => 'released'];
const NOT_HELD = ['said' => 'not-held'];

function monotonic_ns(): int
{
    return hrtime(true);
}

// An error and what led to it, in printable ASCII: messages of servers may be anything.
function one_line(Throwable $error): string
{
    $said = [];
    for ($one = $error; $one !== null; $one = $one->getPrevious()) {
        $said[] = (new ReflectionClass($one))->getShortName() . ': ' . $one->getMessage();
    }
    return preg_replace(['/\s+/', '/[^ -~]/'], [' ', '?'], implode('; ', $said));
}

function denied(string $reason): array
{
    return ['said' => 'denied', 'reason' => $reason];
}

function unknown(Throwable $error): array
{
    return ['said' => 'unknown', 'reason' => one_line($error)];
}

function granted(int $sent_ns, ?int $valid_until_ns): array
{
    return [
        'said' => 'granted',
        'sent_ns' => $sent_ns,
        'valid_until_ns' => $valid_until_ns,
        'fence' => null,
    ];
}

// What is asked of one client. ``ttl_s`` is the lease, ``wait_s`` is 0 for one try.
interface Client
{
    public function acquire(string $key, string $hold, float $ttl_s, float $wait_s): array;

    public function release(string $key, string $hold): array;

    public function extend(string $key, string $hold, float $ttl_s): array;
}

// Grants whatever is asked, so that the sidecar's own cost can be measured.
final class Nothing implements Client
{
    public function acquire(string $key, string $hold, float $ttl_s, float $wait_s): array
    {
        return granted(1, 2);
    }

    public function release(string $key, string $hold): array
    {
        return RELEASED;
    }

    public function extend(string $key, string $hold, float $ttl_s): array
    {
        return NOT_HELD;
    }
}

// All locks, by the name that the bench calls them: the package whose version is told, and how a
// client is made. Each file of a library returns its own.
function kinds(): array
{
    $found = ['nothing' => ['php-cli', static fn (array $setup): Client => new Nothing()]];
    foreach (glob(__DIR__ . '/*.php') as $file) {
        if ($file !== __FILE__) {
            $found += require $file;
        }
    }
    return $found;
}

// Of a package of Debian, as the image notes it.
function version(string $package): string
{
    preg_match("/^{$package}=(.*)$/m", file_get_contents('/etc/lockbench-versions'), $found);
    return $found[1];
}

function carry_out(?Client &$client, callable $connect, array $asked): array
{
    try {
        switch ($asked['call']) {
            case 'open':
                $client = $connect($asked);
                return ['said' => 'opened'];
            case 'acquire':
                $ttl_s = (float) $asked['ttl_s'];
                $wait_s = (float) $asked['wait_s'];
                return $client->acquire($asked['key'], $asked['hold'], $ttl_s, $wait_s);
            case 'release':
                return $client->release($asked['key'], $asked['hold']);
            case 'extend':
                return $client->extend($asked['key'], $asked['hold'], (float) $asked['ttl_s']);
            default:
                return ['said' => 'closed'];
        }
    } catch (Throwable $error) {
        $failed = $asked['call'] === 'open';
        return $failed ? ['said' => 'failed', 'reason' => one_line($error)] : unknown($error);
    }
}

function send($stream, string $line): void
{
    for ($rest = "$line\n"; $rest !== ''; $rest = substr($rest, $written)) {
        $written = fwrite($stream, $rest);
        if (!$written) {
            exit(1); // nobody listens any more
        }
    }
}

function say($stream, array $message): void
{
    send($stream, json_encode($message, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES));
}

// One client, in its own process: a line is a request, and is answered before the next is read.
function serve_client($stream, callable $connect): never
{
    $client = null;
    stream_set_timeout($stream, -1); // without one, an idle client ends after default_socket_timeout
    while (($line = fgets($stream)) !== false) {
        $asked = json_decode($line, true, flags: JSON_THROW_ON_ERROR);
        say($stream, ['id' => $asked['id'], ...carry_out($client, $connect, $asked)]);
        if ($asked['call'] === 'close') {
            break;
        }
    }
    // Ends without destructors, which would give back what is held.
    posix_kill(posix_getpid(), SIGKILL);
    exit;
}

function main(array $arguments): never
{
    $kinds = kinds();
    $lock = $arguments[1] ?? '';
    if (!isset($kinds[$lock])) {
        fwrite(STDERR, "usage: php-sidecar LOCK\n");
        exit(2);
    }
    [$library, $connect] = $kinds[$lock];
    pcntl_signal(SIGCHLD, SIG_IGN); // nobody waits for a client that has ended
    $context = stream_context_create(['socket' => ['tcp_nodelay' => true]]);
    $worker = stream_socket_client('tcp://' . getenv(WORKER), context: $context);
    say($worker, [
        'hello' => PROTOCOL,
        'library' => $library,
        'version' => version($library),
        'word' => getenv(WORD),
        'now_ns' => monotonic_ns(),
    ]);
    $seats = []; // client → the stream to its process
    $closing = []; // client → whether its process may end
    $rest = []; // of a line that has not come to its end
    for (;;) {
        $ready = ['worker' => $worker] + $seats;
        $none = null;
        if (!stream_select($ready, $none, $none, null)) {
            continue; // a signal
        }
        foreach ($ready as $from => $stream) {
            $read = fread($stream, READ_BYTES);
            if (in_array($read, ['', false], true)) {
                if ($from === 'worker' || !isset($closing[$from])) {
                    exit($from === 'worker' ? 0 : 1);
                }
                unset($seats[$from]);
                continue;
            }
            $lines = explode("\n", ($rest[$from] ?? '') . $read);
            $rest[$from] = array_pop($lines);
            foreach ($lines as $line) {
                if ($from !== 'worker') {
                    send($worker, $line);
                    continue;
                }
                ['id' => $id, 'call' => $call] = $asked = json_decode($line, true);
                if ($call === 'ping') {
                    say($worker, ['id' => $id, 'said' => 'pong']);
                    continue;
                }
                $client = $asked['client'];
                if ($call === 'open') {
                    [$mine, $its] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
                    if (pcntl_fork() === 0) {
                        array_map(fclose(...), [$worker, $mine, ...$seats]);
                        serve_client($its, $connect);
                    }
                    fclose($its);
                    $seats[$client] = $mine;
                } elseif ($call === 'close') {
                    $closing[$client] = true;
                }
                send($seats[$client], $line);
            }
        }
    }
}

main($argv);
