package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

const (
	logFlushEvery = 200 * time.Millisecond
	maxLogLine    = 64 << 10 // bytes; longer lines are truncated
	maxLogPending = 20_000   // blocks buffered while the store cannot be written

	logFlushTimeout = 10 * time.Second // bounds the flush at shutdown if the store hangs
)

// logSink collects the lines of all running stages and stores them in batches. Writing
// a line never waits for a transaction.
type logSink struct {
	store      *store.Store
	log        *slog.Logger
	maxPending int
	wake       chan struct{}

	writing sync.Mutex // held during a write, so that batches stay ordered
	mu      sync.Mutex
	pending []line
	stored  int // number of lines stored so far
	dropped int
}

// line is a line and the terms that its write depends on.
type line struct {
	deploy.LogBlock
	terms []deploy.Term
}

func newLogSink(s *store.Store, log *slog.Logger) *logSink {
	return &logSink{store: s, log: log, maxPending: maxLogPending, wake: make(chan struct{}, 1)}
}

// run flushes periodically until ctx ends. Each stage also flushes at its end.
func (l *logSink) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(logFlushEvery):
		}
		if err := l.flush(ctx); err != nil && ctx.Err() == nil {
			l.log.Error("cannot store stage logs; keeping them", "error", err)
			l.signal()
		}
	}
}

// signal wakes run, which then flushes.
func (l *logSink) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// flush stores everything written so far. On an error the lines stay pending.
func (l *logSink) flush(ctx context.Context) error {
	l.mu.Lock()
	upTo := l.stored + len(l.pending)
	l.mu.Unlock()
	return l.flushTo(ctx, upTo)
}

// flushTo stores at least the first upTo lines. A concurrent call may have stored them
// already; then it returns without writing lines that came later.
func (l *logSink) flushTo(ctx context.Context, upTo int) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	batch, done := l.pending, l.stored >= upTo
	l.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, logFlushTimeout)
	defer cancel()
	if err := l.append(ctx, batch); err != nil {
		return fmt.Errorf("store %d lines of stage log: %w", len(batch), err)
	}
	l.mu.Lock()
	l.pending, l.stored = l.pending[len(batch):], l.stored+len(batch)
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	if dropped > 0 {
		l.log.Warn("stage log lines were dropped because the store could not be written", "lines", dropped)
	}
	return nil
}

// append stores lines, those of different terms in separate transactions. It drops those whose terms
// are over: another replica continues the log.
func (l *logSink) append(ctx context.Context, batch []line) error {
	blocks, terms := map[string][]deploy.LogBlock{}, map[string][]deploy.Term{}
	for _, b := range batch {
		key := fmt.Sprint(b.terms)
		blocks[key], terms[key] = append(blocks[key], b.LogBlock), b.terms
	}
	for key := range blocks {
		err := l.store.AppendStageLogs(deploy.WithTerms(ctx, terms[key]), blocks[key])
		if err != nil && !deploy.IsKind(err, deploy.Fenced) {
			return err
		}
	}
	return nil
}

// add queues a line. It drops the line if maxPending lines wait for the store.
func (l *logSink) add(b line) {
	l.mu.Lock()
	if len(l.pending) < l.maxPending {
		l.pending = append(l.pending, b)
	} else {
		l.dropped++
	}
	l.mu.Unlock()
	l.signal()
}

// open returns the log of a stage and continues its numbering. It flushes first, so
// that new lines do not reuse the numbers of pending ones.
func (l *logSink) open(ctx context.Context, deploymentID, stageID string, now func() time.Time) (deploy.StageLog, error) {
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	last, err := l.store.LastLogIndex(ctx, deploymentID, stageID)
	if err != nil {
		return nil, err
	}
	return &stageLog{sink: l, deployment: deploymentID, stage: stageID, terms: deploy.TermsOf(ctx), now: now, index: last}, nil
}

// begin returns the log of a stage without any earlier lines.
func (l *logSink) begin(ctx context.Context, deploymentID, stageID string, now func() time.Time) deploy.StageLog {
	return &stageLog{sink: l, deployment: deploymentID, stage: stageID, terms: deploy.TermsOf(ctx), now: now, index: -1}
}

// stageLog implements deploy.StageLog.
type stageLog struct {
	sink              *logSink
	deployment, stage string
	terms             []deploy.Term
	now               func() time.Time

	mu    sync.Mutex
	index int64
}

// write appends a line with the next index. It truncates long lines and replaces invalid
// UTF-8.
func (l *stageLog) write(severity deploy.Severity, format string, args []any) {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	if len(text) > maxLogLine {
		text = strings.ToValidUTF8(text[:maxLogLine], "") + " … (cut)"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	l.sink.add(line{deploy.LogBlock{
		DeploymentID: l.deployment, StageID: l.stage, Index: l.index, Severity: severity, Log: text, At: l.now(),
	}, l.terms})
}

func (l *stageLog) Infof(format string, args ...any) { l.write(deploy.SeverityInfo, format, args) }
func (l *stageLog) Successf(format string, args ...any) {
	l.write(deploy.SeveritySuccess, format, args)
}
func (l *stageLog) Errorf(format string, args ...any) { l.write(deploy.SeverityError, format, args) }
