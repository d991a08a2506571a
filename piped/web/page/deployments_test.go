package page

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestDeployments: the list has the filters of the address, and says what it shows.
func TestDeployments(t *testing.T) {
	f := calm(t).on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "0000web-id", ApplicationName: "web"}}})
	var asked *apiservice.ListDeploymentsRequest
	rows := []*modelv1.Deployment{
		{Id: "d1", ApplicationId: "0000web-id", ApplicationName: "web", Status: modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, CreatedAtMs: minutesAgo(50), CompletedAtMs: minutesAgo(48)},
		{
			Id: "d2", ApplicationId: "0000web-id", ApplicationName: "web", Status: modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, CreatedAtMs: minutesAgo(70), CompletedAtMs: minutesAgo(60),
			TriggerKind: modelv1.TriggerKind_TRIGGER_KIND_ON_CHAIN, DeploymentChainId: "0123456789abcdef", Trigger: &modelv1.DeploymentTrigger{Commander: "0123456789abcdef"},
		},
	}
	f.answers["ListDeployments"] = func(m proto.Message) (proto.Message, error) {
		asked = proto.CloneOf(m.(*apiservice.ListDeploymentsRequest))
		return &apiservice.ListDeploymentsResponse{Deployments: rows, Cursor: "after"}, nil
	}
	body := golden(t, "deployments", f.get("/deployments?status=FAILURE&status=SUCCESS&application=web&label:team=core&since=2026-03-02T00:00:00Z&until=2026-03-04T12:00:00Z"))
	want := &apiservice.ListDeploymentsRequest{
		Statuses: []string{"DEPLOYMENT_FAILURE", "DEPLOYMENT_SUCCESS"}, ApplicationIds: []string{"0000web-id"}, Labels: map[string]string{"team": "core"}, Limit: deploymentsPage,
		CompletedFromMs: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixMilli(), CompletedToMs: noon.UnixMilli(),
	}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	if !strings.Contains(body, "2 deployments that ended from 2026-03-02 00:00 UTC until 2026-03-04 12:00 UTC: 1 succeeded, 1 failed.") || !strings.Contains(body, `<a href="/chains/0123456789abcdef">deployment chain 01234567</a>`) || strings.Contains(body, "Next page") {
		t.Error(body)
	}
	rows[0].DeploymentChainId, rows[0].ApplicationName = rows[1].DeploymentChainId, "base"
	if body := bodyOf(t, f.get("/deployments")); !strings.Contains(body, `<a href="/chains/0123456789abcdef">chain of base</a>`) {
		t.Error("the chain is not named after the application that began it")
	}
	for len(rows) < deploymentsPage {
		rows = append(rows, rows[0])
	}
	if body := bodyOf(t, f.get("/deployments")); !strings.Contains(body, `href="/deployments?cursor=after"`) {
		t.Error("a full page leads to no next one")
	}
	if resp := f.fails("ListDeployments", codes.InvalidArgument, "LOST is invalid deployment status").get("/deployments?status=LOST"); resp.StatusCode != http.StatusBadRequest {
		t.Error("a status that does not exist:", resp.Status)
	}
}

// TestHostileHistory: what others write is shown as text by these views, without control characters,
// and they contain neither scripts nor styles of their own.
func TestHostileHistory(t *testing.T) {
	const attack = `<script>alert(1)</script>"'><img src=x onerror=alert(1)> <hx-partial hx-target="body"></hx-partial>`
	hostile := attack + "\x1b[31mred\x1b[0m \u202egnp.txt " + strings.Repeat("w", 3000)
	var asked []*controlv1.GetDeliveryFiguresRequest
	f := delivering(t, &asked)
	row := rolled("r"+attack, "web", 1, 9, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED)
	row.ApplicationName, row.Reason, row.Images, row.CausedBy, row.Workload = hostile, hostile, []string{hostile}, hostile, &modelv1.ObjectRef{Kind: hostile, Namespace: hostile, Name: hostile}
	external := proto.CloneOf(row)
	external.DeploymentId, external.ApplicationId = "", ""
	f.on("ListRollouts", &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{row, external}})
	figures := delivered("web", 3, 1)
	figures.ApplicationName = hostile
	f.on("GetDeliveryFigures", &controlv1.GetDeliveryFiguresResponse{Total: delivered("", 3, 1), Applications: []*controlv1.DeliveryFigures{figures}})
	f.on("SearchApplications", &controlv1.SearchApplicationsResponse{Facets: []*controlv1.Facet{{Name: "label", Values: []*controlv1.FacetCount{{Value: hostile, Count: 1}}}}})
	f.on("ListDeployments", &apiservice.ListDeploymentsResponse{Deployments: []*modelv1.Deployment{{Id: attack, ApplicationName: hostile, Trigger: &modelv1.DeploymentTrigger{Commander: hostile, Commit: &modelv1.Commit{Hash: hostile, Message: hostile}}}}})
	const query = "?application=%3Cscript%3Ealert(1)&label:%3Cimg=%3Cimg&outcome=%3Cimg"
	f.on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "0000web-id", ApplicationName: "web"}}})
	for _, target := range []string{"/rollouts", "/delivery", "/delivery?by=%3Cimg", "/deployments", "/rollouts" + query, "/delivery" + query, "/deployments" + query} {
		body := bodyOf(t, f.get(target))
		for _, pattern := range []string{`<script>`, `<img`, `"'>`, `<hx-partial`, `<script[^>]*>[^<]`, `<style`, `\sstyle=`, `<[^>"]*\son\w+=`, `hx-on`, `(src|href)="(https?:)?//`, `[\x1b\x{202e}]`} {
			if found := regexp.MustCompile(pattern).FindString(body); found != "" {
				t.Errorf("%s contains %q", target, found)
			}
		}
		if !strings.Contains(body, "&lt;img") {
			t.Errorf("%s does not show the text", target)
		}
	}
}
