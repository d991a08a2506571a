package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestEveryStageIsInterrupted has one application for each stage of a long pipeline and
// each interruption: cancel, timeout, and kill -9 of the agent, also during the rollback.
// A hold keeps each application in the middle of its stage until then. After a cancel and
// a timeout the cluster must equal the last good commit. After a kill the deployment must
// continue and end as without it.
func TestEveryStageIsInterrupted(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.deployGood(t)
	m.begin(t)
	m.drive(t, "every deployment to be interrupted", func(c *matrixCell) bool {
		switch c.way {
		case killed:
			return c.held || completed(c.deployment)
		case killedInRollback:
			return c.deployment.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK
		}
		return completed(c.deployment)
	})
	for _, c := range m.cells {
		if (c.way == killed || c.way == killedInRollback) && (!c.held || completed(c.deployment)) {
			t.Errorf("%s has ended before the agent was killed: %s", c.app.dir, c.deployment.GetStatusReason())
		}
	}
	m.agent.Kill()
	if err := m.agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range m.cells {
		m.release(t, c)
	}
	m.drive(t, "every deployment to end", func(c *matrixCell) bool { return completed(c.deployment) })
	for _, c := range m.cells {
		t.Run(c.app.dir, func(t *testing.T) { m.verify(t, c) })
	}
}

// The ways to be interrupted.
const (
	cancelled = "cancelled"
	timedOut  = "timed-out"
	killed    = "killed"

	killedInRollback = "killed-in-rollback" // which a cancel has begun
)

// matrix is the agent, the cluster, and the applications.
type matrix struct {
	agent   *agenttest.Agent
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	records keptRecords
	dir     string // of the files that scripts wait for
	checked *gates // what analyses ask
	cells   []*matrixCell
	push    func(version string) string
	commit  string // that is deployed now
}

// matrixCell is one application.
type matrixCell struct {
	stage, way string
	app        progressiveApp
	hold       hold
	good       *lastGood

	deployment *modelv1.Deployment // of the current commit
	held       bool                // it has been in the middle of the stage
	released   bool
	approved   bool
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	cluster, repo := progressiveCluster(t), newRepo(t)
	m := &matrix{kube: cluster.Client(t), dynamic: dynamicClient(t, cluster), dir: t.TempDir(), checked: newGates(t)}
	for _, stage := range matrixStages {
		for _, way := range []string{cancelled, timedOut, killed, killedInRollback} {
			if c := m.cell(stage.id, way); way != killedInRollback || c.hold.holdsRollback() {
				c.app.namespace = cluster.Namespace(t)
				m.cells = append(m.cells, c)
			}
		}
	}
	var apps []progressiveApp
	for _, c := range m.cells {
		apps = append(apps, c.app)
	}
	m.push = func(version string) string { return repo.Push(t, version, filesOf(apps, version)) }
	m.agent = startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), Limit: len(m.cells), More: allowScripts(m.dir)})
	t.Cleanup(func() {
		if t.Failed() {
			keepLog(t, m.agent.LogFile)
		}
	})
	m.records = keptRecords{openStore(t, filepath.Dir(m.agent.KeyFile)), m.dynamic}
	return m
}

// deployGood deploys the version that is the target of rollbacks, and records its state.
func (m *matrix) deployGood(t *testing.T) {
	t.Helper()
	m.commit = m.push("v1")
	m.drive(t, "the first version to be deployed", func(c *matrixCell) bool { return completed(c.deployment) })
	cluster := progressiveCluster(t)
	for _, c := range m.cells {
		if c.deployment.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
			t.Fatalf("%s: %s", c.app.dir, c.deployment.GetStatusReason())
		}
		answerRoute(t, m.dynamic, c.app.namespace, "accept")
		c.good = takeLastGood(t, cluster, m.records.store, c.app)
		c.deployment = nil
	}
}

// begin deploys the next version, with the stages held.
func (m *matrix) begin(t *testing.T) {
	t.Helper()
	for _, c := range m.cells {
		c.hold.begin(t, m, c)
	}
	m.commit = m.push("v2")
}

// drive acts as users, gateways and nodes until every application is done.
func (m *matrix) drive(t *testing.T, what string, done func(*matrixCell) bool) {
	t.Helper()
	err := m.agent.Await(t.Context(), what, 15*time.Minute, func(ctx context.Context) (bool, error) {
		if err := m.readDeployments(ctx); err != nil {
			return false, err
		}
		if err := m.readyPods(ctx); err != nil {
			return false, err
		}
		var open []string
		for _, c := range m.cells {
			m.act(t, c)
			if !done(c) {
				open = append(open, fmt.Sprintf("%s: %s, in stage %q, held %v", c.app.dir, c.deployment.GetStatus(), runningStage(c.deployment), c.held))
			}
		}
		return len(open) == 0, errors.New(strings.Join(open, "\n"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readDeployments reads the deployments of the present commit.
func (m *matrix) readDeployments(ctx context.Context) error {
	resp, err := m.agent.API.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Limit: 1000})
	if err != nil {
		return err
	}
	for _, d := range resp.GetDeployments() {
		for _, c := range m.cells {
			if d.GetApplicationId() == appID(c.app.dir) && d.GetTrigger().GetCommit().GetHash() == m.commit {
				c.deployment = d
			}
		}
	}
	return nil
}

// act does what an application needs now.
func (m *matrix) act(t *testing.T, c *matrixCell) {
	t.Helper()
	if c.deployment == nil || completed(c.deployment) || c.good == nil {
		return
	}
	running := runningStage(c.deployment)
	switch {
	case c.deployment.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK:
		if c.way != killedInRollback {
			m.release(t, c)
		}
	case running == "approval" && !c.approved && (c.stage != "approval" || c.released):
		c.hold.beforeApproval(t, m, c)
		c.approved = true
		if _, err := m.agent.Control.ApproveStage(t.Context(), &controlv1.ApproveStageRequest{DeploymentId: c.deployment.GetId()}); err != nil {
			t.Errorf("%s: approve: %v", c.app.dir, err)
		}
	case running == c.stage && !c.held && c.hold.reached(t, m, c):
		c.held = true
		if c.way == cancelled || c.way == killedInRollback {
			if _, err := m.agent.Control.CancelDeployment(t.Context(), &controlv1.CancelDeploymentRequest{DeploymentId: c.deployment.GetId()}); err != nil {
				t.Errorf("%s: cancel: %v", c.app.dir, err)
			}
		}
	}
	if c.released {
		c.hold.whileReleased(t, m, c)
	}
}

// release ends the hold of an application.
func (m *matrix) release(t *testing.T, c *matrixCell) {
	t.Helper()
	if !c.released {
		c.released = true
		c.hold.release(t, m, c)
	}
}

// verify checks the final state of an application.
func (m *matrix) verify(t *testing.T, c *matrixCell) {
	resp, err := m.agent.API.GetDeployment(t.Context(), &apiservice.GetDeploymentRequest{DeploymentId: c.deployment.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	d := resp.GetDeployment()
	mustHaveEndedOnce(t, d)
	stage := stageOf(t, d, c.stage)
	ended := fmt.Sprintf("%s, the stage %s (%s)", d.GetStatus(), stage.GetStatus(), stage.GetStatusReason())
	switch c.way {
	case cancelled, killedInRollback:
		if d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED || stage.GetStatus() != modelv1.StageStatus_STAGE_CANCELLED {
			t.Errorf("it ended as %s, want that it was cancelled in the stage", ended)
		}
	case timedOut:
		in := stage.GetStatusReason()
		if c.stage == "wait" && !c.held {
			in = d.GetStatusReason() // the machine was too slow to reach the stage before the deployment's timeout
		}
		if d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_FAILURE || !strings.Contains(in, "timed out after") {
			t.Errorf("it ended as %s, want a failure of the stage, which timed out", ended)
		}
	case killed:
		for _, s := range d.GetStages() {
			if !s.GetRollback() && s.GetStatus() != modelv1.StageStatus_STAGE_SUCCESS && s.GetStatus() != modelv1.StageStatus_STAGE_SKIPPED {
				t.Errorf("stage %s is %s: %s", s.GetId(), s.GetStatus(), s.GetStatusReason())
			}
		}
		m.mustBeDeployed(t, c, d)
		return
	}
	mustContain(t, d.GetStatusReason(), "rolled back to commit")
	c.good.mustStand(t)
}
