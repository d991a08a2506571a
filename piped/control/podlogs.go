package control

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Limits of FollowPodLogs.
const (
	logTail         = 1000 // lines, if a request names no beginning
	maxOpenLogs     = 20   // of one caller
	logBytesPerSec  = 1 << 20
	logBytesAtOnce  = 4 << 20 // not delayed; more than a message has
	logMessageBytes = 1 << 20
)

// openLogs counts the running calls of FollowPodLogs by caller, because each holds a connection
// to the cluster. The zero value is ready to use.
type openLogs struct {
	mu     sync.Mutex
	counts map[string]int
}

// open counts a call of a caller until done is called. ok is false if there are too many.
func (o *openLogs) open(account string) (done func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts[account] >= maxOpenLogs {
		return nil, false
	}
	if o.counts == nil {
		o.counts = map[string]int{}
	}
	o.counts[account]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.counts[account]--; o.counts[account] == 0 {
			delete(o.counts, account)
		}
	}, true
}

// FollowPodLogs streams the log of a container of a pod of an application. Nothing is buffered:
// a slow client slows down the read from the cluster.
func (s *controlService) FollowPodLogs(req *controlv1.FollowPodLogsRequest, stream grpc.ServerStreamingServer[controlv1.FollowPodLogsResponse]) error {
	q, err := podLogQuery(req)
	if err != nil {
		return err
	}
	app, sub, err := s.watchApplication(stream.Context(), req.ApplicationId)
	if err != nil {
		return err
	}
	defer sub.close()
	done, ok := s.openLogs.open(callerOf(stream.Context()).Account())
	if !ok {
		return status.Errorf(codes.ResourceExhausted, "these credentials read %d logs already: end one of them first", maxOpenLogs)
	}
	defer done()
	return s.whileVisible(stream.Context(), sub, app.ID, func(ctx context.Context) error {
		sender := podLogSender{limit: rate.NewLimiter(logBytesPerSec, logBytesAtOnce), cursor: req.After, send: stream.Send}
		return s.objects.PodLog(ctx, app, q, func(part deploy.PodLog) error { return sender.part(ctx, part) })
	})
}

func podLogQuery(req *controlv1.FollowPodLogsRequest) (q deploy.PodLogQuery, err error) {
	q = deploy.PodLogQuery{
		Pod: deploy.ObjectSelector{Cluster: req.Cluster, Group: new(string), Kind: "Pod", Name: req.Pod}, Container: req.Container,
		Previous: req.Previous, Since: timeOf(req.SinceMs), Tail: int64(req.TailLines), Follow: req.Follow,
	}
	if req.Namespace != "" {
		q.Pod.Namespace = &req.Namespace
	}
	if q.After, err = logCursor(req.After); err != nil {
		return q, err
	}
	if q.Since.IsZero() && q.After.IsZero() {
		q.Tail = cmp.Or(q.Tail, logTail)
	}
	return q, nil
}

// logCursor reads a cursor: the time of a line; "" is the start.
func logCursor(cursor string) (time.Time, error) {
	if cursor == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, cursor)
	if err != nil {
		return at, deploy.Errorf(deploy.Invalid, "after %q is not the cursor of an earlier response", cursor)
	}
	return at, nil
}

// whileVisible calls f with a context that ends when the application is deleted, when the
// caller may no longer view it, or when the server stops. It then returns the reason.
func (s *controlService) whileVisible(ctx context.Context, sub *entrySubscription, applicationID string, f func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for sub.wait(ctx) == nil {
			_, err := sub.take()
			if err == nil {
				_, err = s.registered(ctx, applicationID)
			}
			if err != nil {
				end(err)
				return
			}
		}
	})
	err := f(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	end(nil)
	watching.Wait()
	return err
}

// podLogSender sends parts of a log at a limited rate.
type podLogSender struct {
	limit  *rate.Limiter
	cursor string
	send   func(*controlv1.FollowPodLogsResponse) error
}

// part sends a part of a log, divided over several messages if it is large.
func (s *podLogSender) part(ctx context.Context, part deploy.PodLog) error {
	m := &controlv1.FollowPodLogsResponse{Container: text(part.Container), EndReason: text(part.End)}
	if part.Pod.Name != "" {
		m.Pod = objectRef(part.Cluster, part.Pod)
		m.Pod.Uid = text(part.UID)
	}
	size := 0
	for _, l := range part.Lines {
		line := &controlv1.PodLogLine{AtMs: millis(l.At), Text: text(l.Text), Truncated: l.Truncated}
		if size += proto.Size(line) + perField; size > logMessageBytes && len(m.Lines) > 0 {
			if err := s.message(ctx, m); err != nil {
				return err
			}
			m, size = &controlv1.FollowPodLogsResponse{}, proto.Size(line)
		}
		m.Lines = append(m.Lines, line)
		if !l.At.IsZero() {
			s.cursor = l.At.UTC().Format(time.RFC3339Nano)
		}
	}
	return s.message(ctx, m)
}

func (s *podLogSender) message(ctx context.Context, m *controlv1.FollowPodLogsResponse) error {
	m.Cursor = s.cursor
	if err := s.limit.WaitN(ctx, min(proto.Size(m), logBytesAtOnce)); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return s.send(m)
}
