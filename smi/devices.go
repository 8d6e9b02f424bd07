package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

const (
	// A frame of the manager's socket: 4 bytes of length, big-endian, then that many bytes of JSON (emulator_runtime/ipc).
	maxFrameBytes = 256 * 1024
	timeout       = 5 * time.Second

	defaultSocket = "/run/emugpu/manager.sock"
	defaultFiles  = "/edev"

	// answered is the note of a picture that lacks nothing.
	answered = ""
)

type process struct {
	PID  *int64  `json:"pid"`
	Name *string `json:"name"`
	Used *int64  `json:"used_bytes"`
}

// gpu is one emulated GPU; pointers are nil where a fact isn't known.
type gpu struct {
	Index       int64
	Name        string
	UUID        string
	Memory      int64
	Used        *int64
	Utilisation *float64
	Healthy     *bool
	Processes   []process
	Of          *whole
}

// whole is the GPU on which a MIG instance is.
type whole struct {
	Index *int64  `json:"gpu"`
	UUID  *string `json:"gpu_uuid"`
}

// entry is a GPU as the manager and the device files write it.
type entry struct {
	Index       *int64    `json:"index"`
	Type        *string   `json:"gpu_type"`
	UUID        *string   `json:"uuid"`
	Memory      *int64    `json:"memory_bytes"`
	Used        *int64    `json:"used_bytes"`
	Utilisation *float64  `json:"utilisation"`
	Healthy     *bool     `json:"healthy"`
	Processes   []process `json:"processes"`
	Mig         *whole    `json:"mig"`
}

type reply struct {
	OK      bool    `json:"ok"`
	Error   string  `json:"error"`
	Devices []entry `json:"devices"`
}

// picture is the GPUs of this container and what isn't known of them. No GPUs and a note: the container has none.
func picture() ([]gpu, string) {
	why := "EMUGPU_TOKEN is not set"
	if token := os.Getenv("EMUGPU_TOKEN"); token != "" {
		gpus, err := ask(orDefault(os.Getenv("EMUGPU_MANAGER_SOCKET"), defaultSocket), token)
		if err == nil {
			return counted(gpus), answered
		}
		var refused refusal
		if errors.As(err, &refused) {
			why = "the sharing manager refused: " + clean(string(refused))
		} else {
			why = "the sharing manager does not answer"
		}
	}
	return counted(ofFiles(orDefault(os.Getenv("EMUGPU_EDEV_DIR"), defaultFiles))), why + "; memory use and load are not known"
}

// counted has the indexes that GPUs have in a container: from 0, as with the NVIDIA runtime, whichever of the node's they are.
// So have the GPUs on which MIG instances are.
func counted(gpus []gpu) []gpu {
	numbers := map[string]int64{}
	for i := range gpus {
		gpus[i].Index = int64(i)
		uuid := gpus[i].UUID
		if gpus[i].Of != nil {
			uuid = *gpus[i].Of.UUID
		}
		if _, known := numbers[uuid]; !known {
			numbers[uuid] = int64(len(numbers))
		}
		if gpus[i].Of != nil {
			number := numbers[uuid]
			gpus[i].Of.Index = &number
		}
	}
	return gpus
}

// refusal is an answer that is none of use.
type refusal string

func (r refusal) Error() string { return string(r) }

func ask(socket, token string) ([]gpu, error) {
	deadline := time.Now().Add(timeout)
	connection, err := connect(socket, deadline)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(deadline); err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]string{"op": "query", "token": token})
	if err != nil {
		return nil, err
	}
	_, err = connection.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	if err != nil && !errors.Is(err, syscall.EPIPE) { // who has hung up may have said why before
		return nil, err
	}
	var answer reply
	if err := readFrame(connection, &answer); err != nil {
		return nil, err
	}
	if !answer.OK {
		return nil, refusal(orDefault(answer.Error, "the reply has no error text"))
	}
	if answer.Devices == nil {
		return nil, refusal("its answer has no devices")
	}
	return gpusOf(answer.Devices)
}

// connect waits for its turn where many come at once: a socket that doesn't block is told to try again when the queue is full,
// and as long as others block, those who try again find it full again. So this one blocks too, until the deadline.
func connect(socket string, deadline time.Time) (net.Conn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), socket)
	defer file.Close() // FileConn has a descriptor of its own
	for {
		left := time.Until(deadline)
		if left < time.Millisecond {
			return nil, os.ErrDeadlineExceeded
		}
		limit := syscall.NsecToTimeval(left.Nanoseconds())
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit); err != nil {
			return nil, err
		}
		err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
		if err == nil {
			return net.FileConn(file)
		}
		if err != syscall.EINTR && err != syscall.EAGAIN {
			return nil, err
		}
	}
}

func readFrame(connection io.Reader, answer *reply) error {
	var length [4]byte
	if _, err := io.ReadFull(connection, length[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxFrameBytes {
		return refusal("its answer is too long")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(connection, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return refusal("its answer is not what was agreed")
	}
	return nil
}

func ofFiles(directory string) []gpu {
	paths, _ := filepath.Glob(filepath.Join(directory, "*"))
	var gpus []gpu
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var file entry
		if json.Unmarshal(content, &file) != nil {
			continue
		}
		if found, err := gpusOf([]entry{file}); err == nil {
			gpus = append(gpus, found...)
		}
	}
	sortByIndex(gpus)
	return gpus
}

func gpusOf(entries []entry) ([]gpu, error) {
	gpus := []gpu{}
	for _, e := range entries {
		if e.Index == nil || e.Type == nil || e.UUID == nil || e.Memory == nil {
			return nil, refusal("its answer has a device without index, uuid, gpu_type or memory_bytes")
		}
		for i, p := range e.Processes {
			if p.PID == nil || p.Name == nil || p.Used == nil {
				return nil, refusal("its answer has a process without pid, name or used_bytes")
			}
			name := clean(*p.Name)
			e.Processes[i].Name = &name
		}
		if e.Mig != nil && (e.Mig.Index == nil || e.Mig.UUID == nil) {
			e.Mig = nil
		}
		if e.Mig != nil {
			uuid := clean(*e.Mig.UUID)
			e.Mig.UUID = &uuid
		}
		gpus = append(gpus, gpu{
			Index: *e.Index, Name: clean(*e.Type), UUID: clean(*e.UUID), Memory: *e.Memory,
			Used: e.Used, Utilisation: e.Utilisation, Healthy: e.Healthy, Processes: e.Processes, Of: e.Mig,
		})
	}
	sortByIndex(gpus)
	return gpus, nil
}

func sortByIndex(gpus []gpu) {
	sort.SliceStable(gpus, func(i, j int) bool { return gpus[i].Index < gpus[j].Index })
}

// clean is the text without what would move a terminal's cursor or break a line.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if (r >= ' ' && r <= '~') || r >= 0xa1 {
			return r
		}
		return '?'
	}, text)
}

func orDefault(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
