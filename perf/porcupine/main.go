// Runs Porcupine over histories of Lockbench's perf run and prints one JSON object a history.
//
// Input lines: "H <lock|register>" begins a history, then "<process> <f> <value> <old> <call> <return>"
// per operation, return -1 where the outcome is unknown. Times are of the check alone, one thread.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type input struct {
	process, f, value, old int
	unknown                bool
}

const free = -1

// An unknown operation may have no effect: placed where it cannot apply, it changes nothing.
func lockStep(state, in, _ interface{}) (bool, interface{}) {
	holder, op := state.(int), in.(input)
	if op.f == 0 && holder == free {
		return true, op.process
	}
	if op.f == 1 && holder == op.process {
		return true, free
	}
	return op.unknown, holder
}

func registerStep(state, in, _ interface{}) (bool, interface{}) {
	value, op := state.(int), in.(input)
	switch op.f {
	case 5:
		return value == op.value, value
	case 6:
		return true, op.value
	}
	if value == op.old {
		return true, op.value
	}
	return op.unknown, value
}

func model(name string) porcupine.Model {
	step := registerStep
	if name == "lock" {
		step = lockStep
	}
	return porcupine.Model{
		Init: func() interface{} { return free },
		Step: step,
	}
}

type answer struct {
	Result string  `json:"result"`
	Ms     float64 `json:"ms"`
}

func check(name string, operations []porcupine.Operation, timeout time.Duration) {
	runtime.GC()
	begin := time.Now()
	result := porcupine.CheckOperationsTimeout(model(name), operations, timeout)
	line, _ := json.Marshal(answer{string(result), float64(time.Since(begin).Microseconds()) / 1e3})
	fmt.Println(string(line))
}

func main() {
	runtime.GOMAXPROCS(1)
	seconds, _ := strconv.Atoi(os.Args[1])
	scanner := bufio.NewScanner(os.Stdin)
	name, operations := "", []porcupine.Operation{}
	for scanner.Scan() {
		text := scanner.Text()
		if text[0] == 'H' {
			if name != "" {
				check(name, operations, time.Duration(seconds)*time.Second)
			}
			name, operations = text[2:], []porcupine.Operation{}
			continue
		}
		var op input
		var call, ret int64
		fmt.Sscan(text, &op.process, &op.f, &op.value, &op.old, &call, &ret)
		if ret < 0 {
			op.unknown, ret = true, math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{
			ClientId: op.process, Input: op, Call: call, Return: ret,
		})
	}
	check(name, operations, time.Duration(seconds)*time.Second)
}
