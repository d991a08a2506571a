package scheduler

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// managedInterval is the interval of checks whether another agent still manages a cluster.
const managedInterval = time.Second

// awaitManaged waits until this agent manages the cluster of the deployment. Stages do not
// start before: their effects outside the cluster, such as those of scripts, wait too. It
// returns the result of the stage if ctx ends first.
func (s *Scheduler) awaitManaged(ctx context.Context, run deploy.StageRun) *deploy.StageResult {
	if s.Managed == nil {
		return nil
	}
	said := ""
	for {
		err := s.Managed(run.Deployment.Provider)
		if err == nil {
			if said != "" {
				run.Log.Infof("This agent manages the cluster now; the stage goes on")
			}
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			run.Log.Infof("Held: %v", err)
		}
		select {
		case <-time.After(managedInterval):
		case <-ctx.Done():
			return &deploy.StageResult{Status: deploy.Stopped(ctx).Status(), Reason: "held: " + said, NoRollback: run.First()}
		}
	}
}
