package drift_test

import (
	"context"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// replica starts a detector with rights on the store of the env.
func (e *env) replica(rights *ownershiptest.Rights) *drift.Detector {
	e.detector = e.newDetector(func(c *drift.Config) { c.Rights = rights })
	e.run()
	return e.detector
}

// compareNow returns the status of a requested comparison.
func (e *env) compareNow(d *drift.Detector, app string) deploy.DriftReport {
	e.t.Helper()
	r, err := d.Report(e.t.Context(), app, false)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// TestOneReplicaReports: the replica with the right to an application stores its state and its
// periods of drift. The others compare it when they are asked, and store nothing. One that gets the
// right goes on with what the others have stored since it had the right before.
func TestOneReplicaReports(t *testing.T) {
	e := newEnv(t)
	rights, others := ownershiptest.New("web"), ownershiptest.New()
	a, b := e.replica(rights), e.replica(others)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.await("web", "SYNCED")
	rights.HandOver("web") // evaluations that the deployment has requested may still be queued
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	if r := e.compareNow(b, "web"); r.Status != deploy.OutOfSync || len(r.Objects) != 1 || r.ID != "" {
		t.Errorf("the replica without the right finds %+v", r)
	}
	e.wantState("web", "SYNCED")
	e.wantPeriods()
	rights.Grant("web")
	a.Wake("web")
	const drifted = "OUT_OF_SYNC 1 difference: 1 changed"
	e.await("web", drifted)
	e.wantPeriods("period-1 ")

	rights.HandOver("web")
	e.cluster().differ("a", nil)
	for name, d := range map[string]*drift.Detector{"a": a, "b": b} {
		d.Wake("web")
		if r := e.compareNow(d, "web"); r.Status != deploy.Synced {
			t.Errorf("%s finds %+v", name, r)
		}
	}
	e.wantState("web", drifted)
	others.Grant("web")
	e.await("web", "SYNCED")
	e.wantPeriods("period-1 REVERTED")

	others.Lose("web")
	e.compareNow(b, "web") // comes after an evaluation that had the right, and would use up the name of a period
	e.pass(time.Minute)
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	rights.Grant("web")
	e.await("web", drifted)
	e.wantPeriods("period-2 ", "period-1 REVERTED")
}

// TestReportOfATermThatIsOver: the store refuses the report of a replica whose right is over.
func TestReportOfATermThatIsOver(t *testing.T) {
	e := newEnv(t)
	rights := ownershiptest.New()
	rights.GrantTerm("web", deploy.Term{Partition: deploy.PartitionOf("web"), Number: 7})
	d := e.newDetector(func(c *drift.Config) { c.Rights = rights })
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	before := e.state("web")
	if _, err := d.Report(context.Background(), "web", false); !deploy.IsKind(err, deploy.Fenced) {
		t.Errorf("the error is %v", err)
	}
	e.wantState("web", before)
}
