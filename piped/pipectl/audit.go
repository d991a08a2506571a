package pipectl

import (
	"context"
	"encoding/json"
	"path"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newAudit(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read the audit log."}
	cmd.AddCommand(newAuditList(t))
	return asGroup(cmd)
}

func newAuditList(t *tool) *cobra.Command {
	req := &controlv1.ListAuditRequest{}
	var since, until string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the calls that changed something or were denied, and sign-ins, newest first.",
		Long: `Show the calls that changed something or were denied, and sign-ins, newest first: all
with the permission administer, else those about applications that one may view.

--output jsonl writes all that match, or as many as --limit says: a JSON object per line.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := auditWhen(req, since, until, t.now()); err != nil {
				return err
			}
			return listAudit(cmd, t, req)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "Only records from this time on: how long ago (such as 12h, 30d or 4w), or a time such as 2026-01-31 or 2026-01-31T12:00:00Z.")
	flags.StringVar(&until, "until", "", "Only records from before this time, in the same formats.")
	flags.StringVar(&req.Subject, "subject", "", "Only calls of this subject.")
	flags.StringVar(&req.Method, "method", "", "Only calls of this method, such as piped.control.v1.ControlService/ApproveStage.")
	flags.StringVar(&req.ApplicationId, "app-id", "", "Only calls about this application.")
	flags.StringVar(&req.Code, "code", "", "Only calls with this gRPC status code, such as OK or PermissionDenied.")
	flags.Int32Var(&req.Limit, "limit", 30, "The most records to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

// auditWhen parses the range of time; "" is unbounded.
func auditWhen(req *controlv1.ListAuditRequest, since, until string, now time.Time) (err error) {
	var from, to time.Time
	if since != "" {
		if from, err = parseTime("since", since, now); err != nil {
			return err
		}
		req.FromMs = from.UnixMilli()
	}
	if until != "" {
		if to, err = parseTime("until", until, now); err != nil {
			return err
		}
		req.ToMs = to.UnixMilli()
	}
	return nil
}

func listAudit(cmd *cobra.Command, t *tool, req *controlv1.ListAuditRequest) error {
	p, err := t.printer(cmd, formatTable, formatJSONLines)
	if err != nil {
		return err
	}
	if p.format == formatJSONLines {
		if !cmd.Flags().Changed("limit") {
			req.Limit = 0
		}
		return exportAudit(cmd, t, p, req)
	}
	resp, err := ask(cmd, t, func(ctx context.Context, c *client) (*controlv1.ListAuditResponse, error) {
		return auditPage(ctx, c, req)
	})
	if err != nil {
		return err
	}
	return p.print(resp, func(p *printer) error { return p.audit(resp) })
}

func auditPage(ctx context.Context, c *client, req *controlv1.ListAuditRequest) (*controlv1.ListAuditResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.control.ListAudit(ctx, req)
	if err != nil {
		return nil, failed("failed to list the audit log", err)
	}
	return resp, nil
}

func (p *printer) audit(resp *controlv1.ListAuditResponse) error {
	t := newTable(fixed("TIME"), flexible("SUBJECT"), optional("ISSUER"), fixed("FROM"), fixed("METHOD"), fixed("RESULT"), flexible("APPLICATION"), flexible("REASON"))
	for _, r := range resp.GetRecords() {
		t.add(instant(r.GetAtMs()), r.GetSubject(), r.GetIssuer(), r.GetRemote(), path.Base(r.GetMethod()), auditResult(r), r.GetApplicationId(), firstLine(r.GetReason()))
	}
	return p.table(t, "No records.", resp.GetCursor())
}

func auditResult(r *controlv1.AuditRecord) cell {
	switch r.GetCode() {
	case "OK":
		return cell{text: r.GetCode(), color: green}
	case "PermissionDenied":
		return cell{text: r.GetCode(), color: red}
	}
	return cell{text: r.GetCode(), color: yellow}
}

// auditRow is a line of the export.
type auditRow struct {
	ID             int64             `json:"id"`
	Time           string            `json:"time"` // RFC 3339, UTC, with milliseconds
	Subject        string            `json:"subject"`
	Issuer         string            `json:"issuer"`
	CallerID       string            `json:"caller_id"`
	Session        bool              `json:"session"`
	Remote         string            `json:"remote"`
	Method         string            `json:"method"`
	Permission     string            `json:"permission"`
	ApplicationID  string            `json:"application_id"`
	DeploymentID   string            `json:"deployment_id"`
	Code           string            `json:"code"`
	Reason         string            `json:"reason"`
	DurationMillis int64             `json:"duration_ms"`
	Target         map[string]string `json:"target"`
	Result         map[string]string `json:"result"`
}

func auditRowOf(r *controlv1.AuditRecord) auditRow {
	row := auditRow{
		ID: r.GetId(), Time: time.UnixMilli(r.GetAtMs()).UTC().Format("2006-01-02T15:04:05.000Z"), Subject: r.GetSubject(), Issuer: r.GetIssuer(),
		CallerID: r.GetCallerId(), Session: r.GetSession(), Remote: r.GetRemote(), Method: r.GetMethod(), Permission: r.GetPermission(),
		ApplicationID: r.GetApplicationId(), DeploymentID: r.GetDeploymentId(), Code: r.GetCode(), Reason: r.GetReason(), DurationMillis: r.GetDurationMs(),
		Target: r.GetTarget(), Result: r.GetResult(),
	}
	if row.Target == nil {
		row.Target = map[string]string{}
	}
	if row.Result == nil {
		row.Result = map[string]string{}
	}
	return row
}

// exportAudit requests and writes pages until the limit of req, or all.
func exportAudit(cmd *cobra.Command, t *tool, p *printer, req *controlv1.ListAuditRequest) error {
	c, err := t.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	left := int(req.GetLimit()) // 0: no limit
	for {
		req.Limit = auditExportPage
		if left > 0 {
			req.Limit = int32(min(left, auditExportPage))
		}
		page, err := auditPage(cmd.Context(), c, req)
		if err != nil {
			return err
		}
		for _, r := range page.GetRecords() {
			if err := encoder.Encode(auditRowOf(r)); err != nil {
				return err
			}
		}
		if left > 0 {
			if left -= len(page.GetRecords()); left <= 0 {
				return nil
			}
		}
		if req.Cursor = page.GetCursor(); req.Cursor == "" {
			return nil
		}
	}
}

// auditExportPage is the page size of an export, the largest that agents return.
const auditExportPage = 500
