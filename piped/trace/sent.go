package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// How far back to search for ended deployments.
const (
	// overlap is the longest expected time of a write: a deployment can be committed
	// after one that ended that much later.
	overlap = 30 * time.Second
	// maxBehind is the age of the oldest deployment that is still exported.
	maxBehind = 24 * time.Hour
)

// sent records which traces were sent: those of all deployments that ended before Until minus
// overlap, and those of the listed deployments, which ended after that.
type sent struct {
	Until       time.Time            `json:"until"`
	Deployments map[string]time.Time `json:"deployments"` // ID to end time
}

// readSent reads the record from a file. Without a file, deployments that end from now
// on are to be sent.
func readSent(path string, now time.Time) (sent, error) {
	s := sent{Until: now, Deployments: map[string]time.Time{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, s.write(path)
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read which traces were sent: %w: remove %s to start over with deployments that end from then on", err, path)
	}
	if s.Deployments == nil {
		s.Deployments = map[string]time.Time{}
	}
	return s, nil
}

// since returns the end time of the oldest deployment that may still have to be sent.
func (s sent) since(now time.Time) time.Time {
	since, oldest := s.Until.Add(-overlap), now.Add(-maxBehind)
	if since.Before(oldest) {
		return oldest
	}
	return since
}

// add records that a deployment was sent.
func (s *sent) add(id string, ended time.Time) {
	s.Deployments[id] = ended
	if ended.After(s.Until) {
		s.Until = ended
	}
	for other, at := range s.Deployments {
		if at.Before(s.Until.Add(-overlap)) {
			delete(s.Deployments, other)
		}
	}
}

// write replaces the file atomically.
func (s sent) write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	err = writeSynced(fresh, data)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fmt.Errorf("write which traces were sent: %w", err)
	}
	return nil
}

// writeSynced writes and syncs a file, since a file damaged by a power loss would keep
// the agent from starting.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
