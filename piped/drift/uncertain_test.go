package drift_test

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestAReportThatMayBeStored: when it cannot be told whether a report was stored, as when
// the connection breaks while it is, the period that is found stored goes on.
func TestAReportThatMayBeStored(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.judge("web")
	app, err := l.store.Application(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	stored := deploy.DriftReport{ID: "stored", ApplicationID: "web", Status: deploy.OutOfSync, CheckedAt: begin, BeganAt: begin}
	if _, err := l.store.ReportDrift(t.Context(), app, deploy.SyncState{Status: deploy.OutOfSync}, &stored); err != nil {
		t.Fatal(err)
	}
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	if r, err := l.detector.Report(t.Context(), "web", false); err == nil {
		t.Errorf("a second period is stored beside the first one: %+v", r)
	}
	if r := l.judge("web"); r.ID != "stored" {
		t.Errorf("the report is %+v", r)
	}
	l.wantPeriods("stored ")
}
