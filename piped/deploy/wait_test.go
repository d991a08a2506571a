package deploy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWaitForApprovalText: what a waiting stage shows names people and groups, and after each
// vote only what is missing.
func TestWaitForApprovalText(t *testing.T) {
	approvals := func(by ...string) string {
		var r ApprovalRecord
		for _, name := range by {
			r.Approvals = append(r.Approvals, ApprovalVote{By: name})
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct{ options, record, want string }{
		{"", "", "1 approval of anyone"},
		{`{"requireOther": true}`, "", "1 approval of anyone who neither requested nor committed it"},
		{`{"minApproverNum": 2}`, approvals("bo"), "1 approval of anyone"},
		{`{"approvers": ["ana", "group:payments"]}`, "", "1 approval of ana, group payments"},
		{`{"approvers": ["ana", "group:payments"], "requireOther": true}`, "", "1 approval of ana, group payments"},
		{`{"approvers": ["ana", "group:payments"], "minApproverNum": 3}`, approvals("ana"), "2 approvals of group payments"},
		{`{"approvers": ["ana", "group:payments"], "minApproverNum": 3}`, approvals("bo", "cy"), "1 approval of ana, group payments"},
		{`{"approvers": ["group:a", "group:b"]}`, "", "1 approval of group a, group b"},
	} {
		d := Deployment{Status: Running, Stages: []Stage{{
			ID: "ok", Name: StageWaitApproval, Status: StageRunning, StartedAt: time.UnixMilli(7),
			Options: json.RawMessage(c.options), Metadata: map[string]string{MetaApprovalRecord: c.record},
		}}}
		want := &Wait{For: c.want, Since: time.UnixMilli(7), StageID: "ok", Approval: true}
		if diff := cmp.Diff(want, d.Wait()); diff != "" {
			t.Errorf("%s after %s (-want +got):\n%s", c.options, c.record, diff)
		}
	}
}

func TestApproversPermit(t *testing.T) {
	for _, c := range []struct {
		approvers []string
		subject   string
		groups    []string
		want      bool
	}{
		{nil, "ana", nil, true},
		{[]string{"ana"}, "ana", nil, true},
		{[]string{"ana"}, "Ana", nil, false},
		{[]string{"ana"}, "bo", []string{"ana"}, false},
		{[]string{"group:payments"}, "bo", []string{"search", "payments"}, true},
		{[]string{"group:payments"}, "bo", []string{"Payments", "group:payments"}, false},
		{[]string{"group:payments"}, "payments", nil, false},
		{[]string{"group:payments"}, "group:payments", nil, false},
	} {
		if got := (ApprovalOptions{Approvers: c.approvers}).Permits(c.subject, c.groups); got != c.want {
			t.Errorf("approvers %q permit %s of groups %q: %t, want %t", c.approvers, c.subject, c.groups, got, c.want)
		}
	}
}

// TestCommitOfEarlierVersions: a stored commit without the fields about e-mail addresses and
// committer loads.
func TestCommitOfEarlierVersions(t *testing.T) {
	var got Commit
	stored := `{"hash":"c0ffee","message":"add web","author":"Ann Lee","branch":"main","at":"2026-01-02T03:04:05Z"}`
	if err := json.Unmarshal([]byte(stored), &got); err != nil {
		t.Fatal(err)
	}
	want := Commit{Hash: "c0ffee", Message: "add web", Author: "Ann Lee", Branch: "main", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commit (-want +got):\n%s", diff)
	}
}
