<?php
// Symfony Lock over phpredis and over PDO, as its documentation shows it.
//
// As it comes: a store holds a key for 300 s until ``acquire`` has set the lease; phpredis waits 60 s
// for an answer, libpq for ever. Safe: the store's own time is the lease, and phpredis has the client
// timeout for connections and answers and does not connect again by itself. Kept: the same store and
// timeouts, and after an error the client goes on with the Redis object that it has, as a worker does.
declare(strict_types=1);

require_once '/usr/share/php/Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\PdoStore;
use Symfony\Component\Lock\Store\PostgreSqlStore;
use Symfony\Component\Lock\Store\RedisStore;

const PAUSE_US = 100_000; // of Lock::acquire(true), between two tries
const LOCK_NOT_AVAILABLE = '55P03';

// A client keeps a connection, and so a store, until a call fails; SymfonyRedisKept keeps it for good.
abstract class SymfonyLock implements Client
{
    private ?PersistingStoreInterface $store = null;
    private array $holds = []; // hold → its Lock

    public function __construct(protected array $setup)
    {
    }

    abstract protected function connect(): PersistingStoreInterface;

    protected function disconnect(): void
    {
        $this->store = null;
    }

    public function acquire(string $key, string $hold, float $ttl_s, float $wait_s): array
    {
        try {
            $this->store ??= $this->connect();
        } catch (Exception $error) {
            return denied('no-effect: ' . one_line($error));
        }
        $lock = (new LockFactory($this->store))->createLock($key, $ttl_s);
        try {
            $sent_ns = $this->take($lock, $wait_s);
        } catch (LockConflictedException) {
            return denied('held');
        } catch (LockAcquiringException $error) {
            $cause = $error->getPrevious();
            if ($cause instanceof PDOException && $cause->getCode() === LOCK_NOT_AVAILABLE) {
                return denied('gave-up: ' . one_line($error));
            }
            $this->disconnect();
            return unknown($error);
        }
        if ($sent_ns === null) {
            return denied($wait_s > 0 ? 'gave-up' : 'held');
        }
        $this->holds[$hold] = $lock;
        return granted($sent_ns, promised_until_ns($lock));
    }

    // A release that finds nothing returns like one that does.
    public function release(string $key, string $hold): array
    {
        $lock = $this->holds[$hold] ?? null;
        unset($this->holds[$hold]);
        if ($lock === null) {
            return NOT_HELD;
        }
        try {
            $lock->release();
            return RELEASED;
        } catch (Exception $error) {
            $this->disconnect();
            return unknown($error);
        }
    }

    public function extend(string $key, string $hold, float $ttl_s): array
    {
        $lock = $this->holds[$hold] ?? null;
        if ($lock === null) {
            return NOT_HELD;
        }
        $sent_ns = monotonic_ns();
        try {
            $lock->refresh($ttl_s);
            return granted($sent_ns, promised_until_ns($lock));
        } catch (LockConflictedException) {
            return NOT_HELD;
        } catch (LockAcquiringException $error) {
            $this->disconnect();
            return unknown($error);
        }
    }

    // When the try was sent that took it; null: none did. acquire(true) has no limit for its wait,
    // so its tries and pauses are made here.
    protected function take(Lock $lock, float $wait_s): ?int
    {
        $over_ns = monotonic_ns() + (int) (1e9 * $wait_s);
        for (;;) {
            $sent_ns = monotonic_ns();
            if ($lock->acquire()) {
                return $sent_ns;
            }
            $left_us = intdiv($over_ns - monotonic_ns(), 1000);
            if ($left_us <= 0) {
                return null;
            }
            usleep(min(PAUSE_US, $left_us + 1));
        }
    }
}

final class SymfonyRedis extends SymfonyLock
{
    protected function connect(): PersistingStoreInterface
    {
        ['nodes' => [[$host, $port]], 'safe' => $safe, 'timeout_s' => $limit_s] = $this->setup;
        $redis = new Redis();
        if (!$safe) {
            $redis->connect($host, $port);
            return new RedisStore($redis);
        }
        $redis->connect($host, $port, timeout: (float) $limit_s, read_timeout: (float) $limit_s);
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        return new RedisStore($redis, initialTtl: (float) $this->setup['ttl_s']);
    }
}

final class SymfonyRedisKept extends SymfonyLock
{
    protected function connect(): PersistingStoreInterface
    {
        ['nodes' => [[$host, $port]], 'timeout_s' => $limit_s] = $this->setup;
        $redis = new Redis();
        $redis->connect($host, $port, timeout: (float) $limit_s, read_timeout: (float) $limit_s);
        return new RedisStore($redis, initialTtl: (float) $this->setup['ttl_s']);
    }

    protected function disconnect(): void
    {
    }
}

abstract class SymfonyPdo extends SymfonyLock
{
    protected PDO $pdo;

    // To the server that takes writes.
    protected function connect(): PersistingStoreInterface
    {
        $hosts = implode(',', array_column($this->setup['nodes'], 0));
        $ports = implode(',', array_column($this->setup['nodes'], 1));
        $server = "host=$hosts;port=$ports;target_session_attrs=read-write";
        $this->pdo = new PDO("pgsql:$server;dbname=postgres;user=lockbench");
        return $this->store();
    }

    abstract protected function store(): PersistingStoreInterface;
}

final class SymfonyPostgreSql extends SymfonyPdo
{
    protected function store(): PersistingStoreInterface
    {
        return new PostgreSqlStore($this->pdo);
    }

    // Here acquire(true) waits in the server, which can be given a limit.
    protected function take(Lock $lock, float $wait_s): ?int
    {
        if ($wait_s <= 0) {
            return parent::take($lock, $wait_s);
        }
        try {
            $this->pdo->exec('SET lock_timeout = ' . max(1, (int) (1000 * $wait_s)));
        } catch (PDOException $error) {
            throw new LockAcquiringException('SET lock_timeout', 0, $error);
        }
        $sent_ns = monotonic_ns();
        return $lock->acquire(true) ? $sent_ns : null;
    }
}

final class SymfonyPdoStore extends SymfonyPdo
{
    protected function store(): PersistingStoreInterface
    {
        $store = new PdoStore($this->pdo);
        try {
            $store->createTable();
        } catch (PDOException) {
            // It is there.
        }
        return $store;
    }
}

// What getRemainingLifetime() says: it counts from before the last request was sent, by the wall
// clock. Null: the lock does not end by itself.
function promised_until_ns(Lock $lock): ?int
{
    $now_ns = monotonic_ns();
    $left_s = $lock->getRemainingLifetime();
    return $left_s === null ? null : $now_ns + (int) (1e9 * $left_s);
}

$kind = static fn (string $class): array => [
    'php-symfony-lock',
    static fn (array $setup): Client => new $class($setup),
];

return [
    'symfony-redis' => $kind(SymfonyRedis::class),
    'symfony-redis-kept' => $kind(SymfonyRedisKept::class),
    'symfony-postgresql' => $kind(SymfonyPostgreSql::class),
    'symfony-pdo' => $kind(SymfonyPdoStore::class),
];
