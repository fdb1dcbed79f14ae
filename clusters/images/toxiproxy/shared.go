package toxiproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/gorilla/mux"
)

// The containers of a pod share a small file in memory with the library that is preloaded into its
// server (../debian/shim.c has the same layout). It is this program's, which outlives the server.

const (
	sharedFile  = "LOCKBENCH_SHARED"
	sharedFiles = 255
)

type syncedFile struct {
	synced int64
	path   [248]byte
}

type sharedMemory struct {
	clockOffsetNS int64
	lock          int32
	_             [244]byte
	files         [sharedFiles]syncedFile
}

var shared = mapShared()

func mapShared() *sharedMemory {
	name := os.Getenv(sharedFile)
	if name == "" {
		return nil
	}
	// Not created when it is there: that is refused in a directory that all may write to.
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if os.IsNotExist(err) {
		file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	}
	if err != nil {
		panic(err)
	}
	defer file.Close()
	const size = int(unsafe.Sizeof(sharedMemory{}))
	// Servers may run as any user, and this program under any mask.
	for _, err := range []error{file.Truncate(int64(size)), file.Chmod(0o666)} {
		if err != nil {
			panic(err)
		}
	}
	at, err := syscall.Mmap(
		int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED,
	)
	if err != nil {
		panic(err)
	}
	return (*sharedMemory)(unsafe.Pointer(&at[0]))
}

func (server *ApiServer) sharedRoutes(routes *mux.Router) {
	if shared == nil {
		return
	}
	routes.HandleFunc("/clock", server.clockSet).Methods("POST").Name("ClockSet")
	routes.HandleFunc("/synced", server.syncedList).Methods("GET").Name("SyncedList")
	routes.HandleFunc("/synced", server.syncedForget).Methods("DELETE").Name("SyncedForget")
}

func (server *ApiServer) clockSet(response http.ResponseWriter, request *http.Request) {
	var order struct {
		OffsetNS *int64 `json:"offset_ns"`
	}
	err := json.NewDecoder(request.Body).Decode(&order)
	if err == nil && order.OffsetNS == nil {
		err = fmt.Errorf("offset_ns is missing")
	}
	if server.apiError(response, joinError(err, ErrBadRequestBody)) {
		return
	}
	atomic.StoreInt64(&shared.clockOffsetNS, *order.OffsetNS)
	respond(response, order)
}

// The bytes of each file that the last sync which has returned had covered. Only while the server is
// dead are path and figure certain to belong together.
func (server *ApiServer) syncedList(response http.ResponseWriter, _ *http.Request) {
	found := map[string]int64{}
	for i := range shared.files {
		file := &shared.files[i]
		if end := bytes.IndexByte(file.path[:], 0); end > 0 {
			found[string(file.path[:end])] = atomic.LoadInt64(&file.synced)
		}
	}
	respond(response, found)
}

func (server *ApiServer) syncedForget(response http.ResponseWriter, _ *http.Request) {
	shared.files = [sharedFiles]syncedFile{}
	respond(response, map[string]int64{})
}

func respond(response http.ResponseWriter, what any) {
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(what)
}
