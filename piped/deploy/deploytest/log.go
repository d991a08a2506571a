// Package deploytest has what tests need of the domain.
package deploytest

import (
	"fmt"
	"slices"
	"sync"
)

// Log is a deploy.StageLog kept in memory: lines as they are said, those of success
// behind "OK ", errors behind "ERROR ". It may be used by several goroutines; its zero
// value is ready.
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

// Lines returns what was said so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
