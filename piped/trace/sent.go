package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Times of what is looked back at.
const (
	// overlap is how long a write may take: a deployment may be committed after one that
	// ended so much later.
	overlap = 30 * time.Second
	// maxBehind is how old a deployment's end may be to be told.
	maxBehind = 24 * time.Hour
)

// sent is what was sent: everything that ended before a time, but for what was
// committed late, and of what ended shortly before that time these deployments.
type sent struct {
	Until       time.Time            `json:"until"`
	Deployments map[string]time.Time `json:"deployments"` // when they ended
}

// readSent reads it from a file. Without one, what ends from now on is to be sent.
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
		return s, fmt.Errorf("read which traces were sent: %w: remove %s, and those of what ends from then on are sent", err, path)
	}
	if s.Deployments == nil {
		s.Deployments = map[string]time.Time{}
	}
	return s, nil
}

// since is from when on there may be deployments to be sent.
func (s sent) since(now time.Time) time.Time {
	since, oldest := s.Until.Add(-overlap), now.Add(-maxBehind)
	if since.Before(oldest) {
		return oldest
	}
	return since
}

// add notes that a deployment was sent.
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

// write replaces the file.
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

// writeSynced writes a file that is whole also after a loss of power: a damaged one keeps
// the agent from starting.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
