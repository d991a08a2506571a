package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// auditBody is the JSON column of an audit record.
type auditBody struct {
	Issuer       string            `json:"issuer,omitempty"`
	CallerID     string            `json:"callerID,omitempty"`
	Session      bool              `json:"session,omitempty"`
	Remote       string            `json:"remote,omitempty"`
	Permission   deploy.Permission `json:"permission,omitempty"`
	DeploymentID string            `json:"deploymentID,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	Duration     time.Duration     `json:"duration,omitempty"` // in nanoseconds
	Target       map[string]string `json:"target,omitempty"`
	Result       map[string]string `json:"result,omitempty"`
}

const (
	auditColumns = "id, at, subject, method, application_id, code, body"
	selectAudit  = "SELECT " + auditColumns + " FROM audit_records"
)

func scanAudit(row scanner) (r deploy.AuditRecord, err error) {
	var body string
	var at int64
	if err := row.Scan(&r.ID, &at, &r.Subject, &r.Method, &r.ApplicationID, &r.Code, &body); err != nil {
		return r, err
	}
	var b auditBody
	err = decode(body, &b)
	r.At, r.Issuer, r.CallerID, r.Session, r.Remote = fromMilli(at), b.Issuer, b.CallerID, b.Session, b.Remote
	r.Permission, r.DeploymentID, r.Reason, r.Duration, r.Target, r.Result = b.Permission, b.DeploymentID, b.Reason, b.Duration, b.Target, b.Result
	return r, err
}

// AppendAudit stores records in one transaction and gives them their IDs: ascending in the
// order of the commits, and of the records. It sets At where it is zero. It publishes no
// change. Stored records never change; RemoveAudit deletes old ones.
func (s *Store) AppendAudit(ctx context.Context, records ...deploy.AuditRecord) error {
	if len(records) == 0 {
		return nil
	}
	rows := make([][]any, 0, len(records))
	for _, r := range records {
		if r.At.IsZero() {
			r.At = s.now()
		}
		body, err := encode(auditBody{r.Issuer, r.CallerID, r.Session, r.Remote, r.Permission, r.DeploymentID, r.Reason, r.Duration, r.Target, r.Result})
		if err != nil {
			return s.fail(err, "append to the audit log")
		}
		rows = append(rows, []any{int64(0), toMilli(r.At), r.Subject, r.Method, r.ApplicationID, r.Code, body})
	}
	err := s.write(ctx, func(t *tx) error {
		last, _, err := one(ctx, t, scanNumber, "UPDATE counters SET value = value + ? WHERE name = 'audit' RETURNING value", len(rows))
		if err != nil {
			return err
		}
		for i := range rows {
			rows[i][0] = last - int64(len(rows)-1-i)
		}
		return t.insert(ctx, "audit_records", auditColumns, "", rows)
	})
	return s.fail(err, "append to the audit log")
}

// AuditQuery selects audit records. Zero fields do not restrict.
type AuditQuery struct {
	From, To      time.Time // at From or later, and before To
	Subject       string
	Method        string
	ApplicationID string
	Code          string
	// Scope must contain the application of a record. Records about no application are in the
	// scope of all only. nil: no restriction.
	Scope *deploy.Scope
	// OfApplications leaves out the records about no application.
	OfApplications bool

	Limit  int // 0: no limit
	Cursor string
}

// filter returns the conditions. An index is ordered by time within the values of one column:
// that of the first condition is used.
func (q AuditQuery) filter() (f filter) {
	equal := f.equal
	for _, c := range [][2]string{{"application_id", q.ApplicationID}, {"subject", q.Subject}, {"code", q.Code}, {"method", q.Method}} {
		if c[1] != "" {
			equal(c[0], c[1])
			equal = f.sift
		}
	}
	if q.OfApplications {
		f.add("application_id <> ''")
	}
	if !q.From.IsZero() {
		f.add("at >= ?", toMilli(q.From))
	}
	if !q.To.IsZero() {
		f.add("at < ?", toMilli(q.To))
	}
	return f
}

const auditOrder = " ORDER BY at DESC, id DESC"

// ListAudit returns audit records, the newest first, then by descending ID, and the cursor of
// the next page, "" if there is none. Invalid for a cursor that no list returned.
func (s *Store) ListAudit(ctx context.Context, q AuditQuery) ([]deploy.AuditRecord, string, error) {
	f := q.filter()
	if err := f.afterAudit(q.Cursor); err != nil {
		return nil, "", err
	}
	few := q.ApplicationID != ""
	if _, err := s.scoped(ctx, &f, q.Scope, scopedList{"audit_records", "application_id", "at"}, few, q.Limit, q.Cursor); err != nil {
		return nil, "", s.fail(err, "list the audit log")
	}
	query := f.limit(selectAudit+f.where()+auditOrder, extra(q.Limit))
	found, err := all(ctx, s, scanAudit, query, f.args...)
	if err != nil || q.Limit <= 0 || len(found) <= q.Limit {
		return found, "", s.fail(err, "list the audit log")
	}
	found = slices.Clip(found[:q.Limit])
	last := found[q.Limit-1]
	return found, cursorAt(last.At, strconv.FormatInt(last.ID, 10)), nil
}

// afterAudit selects the records after a cursor.
func (f *filter) afterAudit(cursor string) error {
	if cursor == "" {
		return nil
	}
	p, err := parseCursor(cursor)
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(p.ID, 10, 64)
	if err != nil {
		return errCursor()
	}
	f.add("at <= ? AND (at < ? OR id < ?)", p.UpdatedAt, p.UpdatedAt, id)
	return nil
}

// oldAudit deletes the oldest audit records before a time.
const oldAudit = "DELETE FROM audit_records WHERE id IN (SELECT id FROM audit_records WHERE at < ? ORDER BY at LIMIT ?)"

// RemoveAudit deletes up to limit audit records from before a time, in one transaction. It
// returns how many were deleted.
func (s *Store) RemoveAudit(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, oldAudit, toMilli(before), limit)
		removed = int(n)
		return err
	})
	if err != nil {
		return 0, s.fail(err, "remove old audit records")
	}
	return removed, nil
}
