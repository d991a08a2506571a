package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"
)

// ports are the loopback ports of a cluster by name. They are chosen once, so
// that a kubeconfig stays valid over restarts.
type ports map[string]int

// portNames are the listeners of a cluster; etcd-peer has no client.
var portNames = []string{"etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler", "kwok", "writers"}

type stateFile struct {
	Ports ports `json:"ports"`
}

// loadPorts reads the ports from the folder, or chooses and keeps them.
func loadPorts(d dir) (ports, error) {
	file := d.path("state.json")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return choosePorts(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's state: %w", err)
	}
	var state stateFile
	if err := json.Unmarshal(raw, &state); err != nil {
		return nil, fmt.Errorf("reading %s: %w; remove the file to have ports chosen anew", file, err)
	}
	for _, name := range portNames {
		if state.Ports[name] == 0 {
			return nil, fmt.Errorf("%s has no port for %s; remove the file to have ports chosen anew", file, name)
		}
	}
	return state.Ports, nil
}

// choosePorts holds every listener until all are chosen, so that no port is
// handed out twice.
func choosePorts(file string) (ports, error) {
	chosen := ports{}
	for _, name := range portNames {
		l, err := listenAnywhere()
		if err != nil {
			return nil, fmt.Errorf("choosing a port for %s: %w", name, err)
		}
		defer l.Close()
		chosen[name] = l.Addr().(*net.TCPAddr).Port
	}
	raw, err := json.MarshalIndent(stateFile{Ports: chosen}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the cluster's state: %w", err)
	}
	if err := writeFile(file, raw); err != nil {
		return nil, fmt.Errorf("keeping the cluster's ports: %w", err)
	}
	return chosen, nil
}

// Ports are chosen below those that Linux gives to outgoing connections by default: another
// program could take a port of that range while the cluster is down.
const (
	lowestPort  = 20000
	highestPort = 32767
)

// listenAnywhere listens on an unused port.
func listenAnywhere() (l net.Listener, err error) {
	for range 100 {
		l, err = listen(lowestPort + rand.IntN(highestPort-lowestPort+1))
		if err == nil {
			return l, nil
		}
	}
	return nil, err
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// freedWithin is how long the components of a killed cluster may still hold their ports:
// a process is gone when the last of its threads is.
const freedWithin = 10 * time.Second

// checkFree says which port another program took meanwhile, before a
// component fails on it with a less helpful message.
func (p ports) checkFree(d dir) error {
	until := time.Now().Add(freedWithin)
	for _, name := range portNames {
		l, err := listen(p[name])
		for ; err != nil && time.Now().Before(until); l, err = listen(p[name]) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("port %d, kept for %s, is taken: %w; end the program that uses it, or remove %s and %s to have ports chosen anew",
				p[name], name, err, d.path("state.json"), d.kubeconfig())
		}
		l.Close()
	}
	return nil
}

// writeFile replaces a file in one step: a process killed while writing
// leaves the old file or the new one.
func writeFile(file string, raw []byte) error {
	tmp := file + ".new"
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
