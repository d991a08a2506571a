// Package deploytest provides test helpers for package deploy.
package deploytest

import (
	"fmt"
	"slices"
	"sync"
)

// Log is a deploy.StageLog in memory. Success lines get the prefix "OK ", error lines
// "ERROR ". It is safe for concurrent use; its zero value is ready.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Infof implements deploy.StageLog.
func (l *Log) Infof(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// Successf implements deploy.StageLog.
func (l *Log) Successf(format string, args ...any) { l.Infof("OK "+format, args...) }

// Errorf implements deploy.StageLog.
func (l *Log) Errorf(format string, args ...any) { l.Infof("ERROR "+format, args...) }

// Lines returns the lines written so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
