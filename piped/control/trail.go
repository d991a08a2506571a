package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// auditRecords stores audit records.
type auditRecords interface {
	// AppendAudit stores records in one transaction.
	AppendAudit(ctx context.Context, records ...deploy.AuditRecord) error
	// ListAudit returns records, the newest first, and the cursor of the next page, "" at
	// the end.
	ListAudit(ctx context.Context, q store.AuditQuery) ([]deploy.AuditRecord, string, error)
}

const (
	// maxTrail limits the records that are stored in one transaction.
	maxTrail = 256
	// trailTimeout limits the write of records. Calls wait for it, and end without it.
	trailTimeout = 5 * time.Second
)

// trail stores audit records. A call ends after its record is stored, together with those of
// concurrent calls. If the store fails, the log has the record.
type trail struct {
	store auditRecords
	log   *slog.Logger
	queue chan trailEntry
	ended chan struct{} // closed when run has returned
}

type trailEntry struct {
	record deploy.AuditRecord
	stored chan struct{}
}

func newTrail(s auditRecords, log *slog.Logger) *trail {
	return &trail{store: s, log: log, queue: make(chan trailEntry), ended: make(chan struct{})}
}

// run stores records until ctx ends.
func (t *trail) run(ctx context.Context) {
	defer close(t.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-t.queue:
			t.put(ctx, t.batch(first))
		}
	}
}

// batch returns first and the records of the other calls that wait.
func (t *trail) batch(first trailEntry) []trailEntry {
	batch := []trailEntry{first}
	for len(batch) < maxTrail {
		select {
		case next := <-t.queue:
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// put stores a batch.
func (t *trail) put(ctx context.Context, batch []trailEntry) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), trailTimeout)
	defer end()
	records := make([]deploy.AuditRecord, len(batch))
	for i, e := range batch {
		records[i] = e.record
	}
	err := t.store.AppendAudit(ctx, records...)
	if err != nil && len(records) > 1 { // one record must not take others with it
		err = nil
		for _, r := range records {
			err = errors.Join(err, t.store.AppendAudit(ctx, r))
		}
	}
	if err != nil {
		t.log.ErrorContext(ctx, "cannot store audit records; the audit file or this log has them", "records", len(records), "error", err)
	}
	for _, e := range batch {
		close(e.stored)
	}
}

// add returns after a record is stored. Without run the record is only in the audit file or
// the log.
func (t *trail) add(record deploy.AuditRecord) {
	e := trailEntry{record, make(chan struct{})}
	select {
	case t.queue <- e:
		<-e.stored
	case <-t.ended:
		t.log.Error("an audit record is not stored, because the agent is stopping; the audit file or this log has it", "method", record.Method, "subject", record.Subject)
	}
}

// record returns the audit record of a call that ended with err.
func (c *call) record(ctx context.Context, resp any, err error) deploy.AuditRecord {
	r := deploy.AuditRecord{
		At: c.start, Subject: c.caller.Subject, Issuer: c.caller.Issuer, CallerID: c.caller.ID, Session: c.caller.Session, Remote: c.remote,
		Method: c.method[1:], Permission: c.methods[c.method].permission, Code: status.Code(err).String(), Duration: c.now().Sub(c.start),
		Target: textsOf(audited(c.request)), Result: textsOf(audited(resp)),
	}
	if status.Code(err) != codes.OK {
		r.Reason = short(status.Convert(err).Message())
	}
	if about, ok := c.request.(aboutApplication); ok {
		r.ApplicationID = short(about.GetApplicationId())
	}
	if about, ok := c.request.(aboutDeployment); ok {
		r.DeploymentID = short(about.GetDeploymentId())
	}
	if r.ApplicationID == "" && r.DeploymentID != "" { // users see the records of their applications
		if found, err := c.store.DeploymentsByID(ctx, []string{r.DeploymentID}); err == nil && len(found) == 1 {
			r.ApplicationID = found[0].ApplicationID
		}
	}
	return r
}

// textsOf converts the attributes of an audit record to texts.
func textsOf(attrs []any) map[string]string {
	out := map[string]string{}
	for _, a := range attrs {
		if attr, ok := a.(slog.Attr); ok {
			out[attr.Key] = fmt.Sprint(attr.Value.Any())
		}
	}
	return out
}
