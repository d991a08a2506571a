// Package endpoint is the file in which a running agent says, in its data directory,
// where its control API is, so that pipectl on the same machine finds it:
//
//	{"address": "127.0.0.1:9083", "certFile": "", "ownerKeyFile": "/var/lib/piped/owner.key"}
//
// It holds no secret, and names only files. It never starts or connects to anything.
package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// FileName is the file's name in the data directory.
const FileName = "control.json"

// Endpoint is the content of the file.
type Endpoint struct {
	Address string `json:"address"` // host:port, where a client on this machine reaches it
	// CertFile is the certificate that the agent shows, "" for plaintext.
	CertFile     string `json:"certFile"`
	OwnerKeyFile string `json:"ownerKeyFile"`
}

// Directories are the data directories in which Find looks: the default of
// spec.dataDir, and the one that the examples use.
func Directories() []string {
	dirs := []string{"/var/lib/piped"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append([]string{filepath.Join(home, ".piped"), filepath.Join(home, ".piped-observe")}, dirs...)
	}
	return dirs
}

// Local returns a listening address as a client on this machine dials it: all
// interfaces become loopback.
func Local(listening string) string {
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return listening
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// Write stores e in a data directory, whole or not at all.
func Write(dataDir string, e Endpoint) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := filepath.Join(dataDir, FileName)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Find returns the first endpoint in the directories, and its file. The error wraps
// fs.ErrNotExist when no directory has one.
func Find(dirs []string) (e Endpoint, path string, err error) {
	for _, dir := range dirs {
		path = filepath.Join(dir, FileName)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err != nil {
			return e, path, fmt.Errorf("read where the agent is: %w", err)
		}
		return e, path, nil
	}
	return e, "", fmt.Errorf("no running agent has left %s in any of %v: %w", FileName, dirs, fs.ErrNotExist)
}
