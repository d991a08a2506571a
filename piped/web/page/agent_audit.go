package page

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// auditView is a page of the audit log.
type auditView struct {
	q       url.Values
	records []*controlv1.AuditRecord
	next    string
	partial bool // only records of the applications that the caller may view
}

// auditFilters are the parameters of the address that filter the log.
func auditFilters() []string {
	return []string{"subject", "method", "application", "code", "from", "to"}
}

// auditCodes are the results that can be filtered for.
func auditCodes() []codes.Code {
	return []codes.Code{codes.OK, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.ResourceExhausted, codes.Unavailable, codes.Internal}
}

// showAudit shows the audit log.
func showAudit(v *visit) (*screen, error) {
	a := &auditView{q: v.query(), partial: !v.everywhere("administer")}
	req, err := v.auditRequest(a.q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.ListAudit(v.ctx, req)
	a.records, a.next = resp.GetRecords(), resp.GetCursor()
	return &screen{body: auditBody(v, a)}, err
}

// auditRequest returns the request for the filters of an address.
func (v *visit) auditRequest(q url.Values) (*controlv1.ListAuditRequest, error) {
	req := &controlv1.ListAuditRequest{Subject: q.Get("subject"), Method: fullMethod(q.Get("method")), Code: q.Get("code"), Limit: accessPage, Cursor: q.Get("cursor")}
	var err error
	if req.FromMs, err = v.day(q, "from", 0); err != nil {
		return nil, err
	}
	if req.ToMs, err = v.day(q, "to", 1); err != nil {
		return nil, err
	}
	if name := q.Get("application"); name != "" {
		req.ApplicationId = name
		found, err := v.control.Resolve(v.ctx, &controlv1.ResolveRequest{Application: name})
		if err != nil {
			return nil, err
		}
		if len(found.Matches) > 1 {
			return nil, status.Errorf(codes.InvalidArgument, "%d applications are called %q: give the ID of one", len(found.Matches), name)
		}
		if len(found.Matches) == 1 {
			req.ApplicationId = found.Matches[0].Id
		}
	}
	return req, nil
}

// day returns the begin of a day of the address, or of a later one; 0 if it names none.
func (v *visit) day(q url.Values, name string, later int) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	at, err := time.ParseInLocation(time.DateOnly, text, v.now.Location())
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%s: %q is not a day such as %s", name, text, v.now.Format(time.DateOnly))
	}
	return at.AddDate(0, 0, later).UnixMilli(), nil
}

// controlMethods begins the names of the methods of our own service.
const controlMethods = "piped.control.v1.ControlService/"

// fullMethod completes the name of a method of our own service.
func fullMethod(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	return controlMethods + name
}

// shortMethod returns the name of a method without its service.
func shortMethod(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func (a *auditView) filtered() bool {
	return slices.ContainsFunc(auditFilters(), a.q.Has)
}

func (a *auditView) headline() string {
	denied := 0
	for _, r := range a.records {
		if r.Code == codes.PermissionDenied.String() || r.Code == codes.Unauthenticated.String() {
			denied++
		}
	}
	text := plural(len(a.records), "record", "records")
	if a.next != "" {
		text = "The first " + text
	}
	if a.q.Has("cursor") {
		text = plural(len(a.records), "earlier record", "earlier records")
	}
	if denied > 0 {
		return text + "; " + plural(denied, "call was", "calls were") + " denied."
	}
	return text + "; no call was denied."
}

// auditMark returns the mark of a result.
func auditMark(code string) mark {
	switch code {
	case codes.OK.String():
		return mark{icon: "check", word: "Done", role: roleOK}
	case codes.PermissionDenied.String(), codes.Unauthenticated.String():
		return mark{icon: "stop", word: "Denied", role: roleAttention}
	}
	return mark{icon: "cross", word: code, role: roleBad}
}

// auditPairs returns a map in one line, by name.
func auditPairs(m map[string]string) string {
	list := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+": "+m[name])
	}
	return strings.Join(list, " · ")
}

// callerWord says what a caller is.
func callerWord(r *controlv1.AuditRecord) string {
	if r.Session {
		return "Session"
	}
	return "API key"
}
