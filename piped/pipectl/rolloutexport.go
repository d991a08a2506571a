package pipectl

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// exportPage is how many rollouts are asked for at once.
const exportPage = 1000

// exportRollouts writes what req asks for page by page, each as it comes; as many as
// its limit says, or all.
func exportRollouts(cmd *cobra.Command, t *tool, p *printer, req *controlv1.ListRolloutsRequest) error {
	c, err := t.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	write, err := rolloutWriter(p.out, p.format)
	if err != nil {
		return err
	}
	left := int(req.GetLimit()) // 0: no limit
	for {
		req.Limit = exportPage
		if left > 0 {
			req.Limit = int32(min(left, exportPage))
		}
		page, err := rolloutPage(cmd.Context(), c, req)
		if err != nil {
			return err
		}
		if err := write(page.GetRollouts()); err != nil {
			return err
		}
		if left > 0 {
			if left -= len(page.GetRollouts()); left <= 0 {
				return nil
			}
		}
		if req.Cursor = page.GetCursor(); req.Cursor == "" {
			return nil
		}
	}
}

func rolloutPage(ctx context.Context, c *client, req *controlv1.ListRolloutsRequest) (*controlv1.ListRolloutsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return listRollouts(ctx, c, req)
}

// rolloutWriter returns what writes rollouts in a format, as RFC 4180 has it after a
// line of the columns' names, or as one JSON object a line.
func rolloutWriter(out io.Writer, format string) (func([]*modelv1.Rollout) error, error) {
	if format == formatJSONLines {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return func(rollouts []*modelv1.Rollout) error {
			for _, r := range rollouts {
				if err := encoder.Encode(recordOf(r)); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	w := csv.NewWriter(out)
	w.UseCRLF = true
	names := make([]string, 0, len(rolloutColumns()))
	for _, c := range rolloutColumns() {
		names = append(names, c.name)
	}
	if err := w.Write(names); err != nil {
		return nil, err
	}
	return func(rollouts []*modelv1.Rollout) error {
		for _, r := range rollouts {
			record, row := recordOf(r), make([]string, 0, len(names))
			for _, c := range rolloutColumns() {
				row = append(row, c.value(record))
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}, nil
}

// rolloutRecord is a rollout as it is exported: the columns of CSV, and of the table
// that the agent streams to.
type rolloutRecord struct {
	ID              string   `json:"id"`
	Kind            string   `json:"kind"`
	ApplicationID   string   `json:"application_id"`
	ApplicationName string   `json:"application_name"`
	DeploymentID    string   `json:"deployment_id"`
	StageID         string   `json:"stage_id"`
	Cluster         string   `json:"cluster"`
	WorkloadKind    string   `json:"workload_kind"`
	Namespace       string   `json:"namespace"`
	Workload        string   `json:"workload"`
	UID             string   `json:"uid"`
	Revision        int64    `json:"revision"`
	RevisionName    string   `json:"revision_name"`
	Commit          string   `json:"commit"`
	Images          []string `json:"images"`
	Outcome         string   `json:"outcome"`
	Reason          string   `json:"reason"`
	CausedBy        string   `json:"caused_by"`
	SupersededBy    string   `json:"superseded_by"`
	StartedAt       *string  `json:"started_at"`
	CompletedAt     *string  `json:"completed_at"`
	MarkedAt        *string  `json:"marked_at"`
	DurationMillis  *int64   `json:"duration_ms"`
	ScheduleMillis  *int64   `json:"schedule_ms"`
	PullMillis      *int64   `json:"pull_ms"`
	ReadyMillis     *int64   `json:"ready_ms"`
	FromReplicas    int32    `json:"from_replicas"`
	ToReplicas      int32    `json:"to_replicas"`
}

func recordOf(r *modelv1.Rollout) rolloutRecord {
	w := r.GetWorkload()
	images := r.GetImages()
	if images == nil {
		images = []string{}
	}
	record := rolloutRecord{
		ID: r.GetId(), Kind: unprefix(r.GetKind(), rolloutKindPrefix), ApplicationID: r.GetApplicationId(), ApplicationName: r.GetApplicationName(),
		DeploymentID: r.GetDeploymentId(), StageID: r.GetStageId(), Cluster: w.GetCluster(), WorkloadKind: w.GetKind(), Namespace: w.GetNamespace(),
		Workload: w.GetName(), UID: w.GetUid(), Revision: r.GetRevision(), RevisionName: r.GetRevisionName(), Commit: r.GetCommit(), Images: images,
		Outcome: unprefix(r.GetOutcome(), rolloutOutcomePrefix), Reason: r.GetReason(), CausedBy: r.GetCausedBy(), SupersededBy: r.GetSupersededBy(),
		StartedAt: exact(r.GetStartedAtMs()), CompletedAt: exact(r.GetCompletedAtMs()), MarkedAt: exact(r.GetMarkedAtMs()),
		ScheduleMillis: r.ScheduleMs, PullMillis: r.PullMs, ReadyMillis: r.ReadyMs, FromReplicas: r.GetFromReplicas(), ToReplicas: r.GetToReplicas(),
	}
	if r.GetCompletedAtMs() != 0 {
		took := r.GetCompletedAtMs() - r.GetStartedAtMs()
		record.DurationMillis = &took
	}
	return record
}

// exact writes a time as RFC 3339 has it, with milliseconds; nil for none.
func exact(ms int64) *string {
	if ms == 0 {
		return nil
	}
	text := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	return &text
}

// rolloutColumn is one column of the CSV.
type rolloutColumn struct {
	name  string
	value func(rolloutRecord) string
}

func rolloutColumns() []rolloutColumn {
	text := func(name string, value func(rolloutRecord) string) rolloutColumn {
		return rolloutColumn{name, func(r rolloutRecord) string { return clean(value(r)) }}
	}
	moment := func(name string, value func(rolloutRecord) *string) rolloutColumn {
		return rolloutColumn{name, func(r rolloutRecord) string {
			if at := value(r); at != nil {
				return *at
			}
			return ""
		}}
	}
	millis := func(name string, value func(rolloutRecord) *int64) rolloutColumn {
		return rolloutColumn{name, func(r rolloutRecord) string {
			if ms := value(r); ms != nil {
				return strconv.FormatInt(*ms, 10)
			}
			return ""
		}}
	}
	count := func(name string, value func(rolloutRecord) int32) rolloutColumn {
		return rolloutColumn{name, func(r rolloutRecord) string { return strconv.Itoa(int(value(r))) }}
	}
	return []rolloutColumn{
		text("id", func(r rolloutRecord) string { return r.ID }),
		text("kind", func(r rolloutRecord) string { return r.Kind }),
		text("application_id", func(r rolloutRecord) string { return r.ApplicationID }),
		text("application_name", func(r rolloutRecord) string { return r.ApplicationName }),
		text("deployment_id", func(r rolloutRecord) string { return r.DeploymentID }),
		text("stage_id", func(r rolloutRecord) string { return r.StageID }),
		text("cluster", func(r rolloutRecord) string { return r.Cluster }),
		text("workload_kind", func(r rolloutRecord) string { return r.WorkloadKind }),
		text("namespace", func(r rolloutRecord) string { return r.Namespace }),
		text("workload", func(r rolloutRecord) string { return r.Workload }),
		text("uid", func(r rolloutRecord) string { return r.UID }),
		text("revision", func(r rolloutRecord) string { return strconv.FormatInt(r.Revision, 10) }),
		text("revision_name", func(r rolloutRecord) string { return r.RevisionName }),
		text("commit", func(r rolloutRecord) string { return r.Commit }),
		text("images", func(r rolloutRecord) string { return strings.Join(r.Images, " ") }),
		text("outcome", func(r rolloutRecord) string { return r.Outcome }),
		text("reason", func(r rolloutRecord) string { return r.Reason }),
		text("caused_by", func(r rolloutRecord) string { return r.CausedBy }),
		text("superseded_by", func(r rolloutRecord) string { return r.SupersededBy }),
		moment("started_at", func(r rolloutRecord) *string { return r.StartedAt }),
		moment("completed_at", func(r rolloutRecord) *string { return r.CompletedAt }),
		moment("marked_at", func(r rolloutRecord) *string { return r.MarkedAt }),
		millis("duration_ms", func(r rolloutRecord) *int64 { return r.DurationMillis }),
		millis("schedule_ms", func(r rolloutRecord) *int64 { return r.ScheduleMillis }),
		millis("pull_ms", func(r rolloutRecord) *int64 { return r.PullMillis }),
		millis("ready_ms", func(r rolloutRecord) *int64 { return r.ReadyMillis }),
		count("from_replicas", func(r rolloutRecord) int32 { return r.FromReplicas }),
		count("to_replicas", func(r rolloutRecord) int32 { return r.ToReplicas }),
	}
}
