package approval

import (
	"context"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// Run answers the commands for stages that are not waiting for approval, so that none
// stays open. It returns when ctx ends.
func (e *Executor) Run(ctx context.Context) error {
	background.Answer(ctx, e.Store.Watch(deploy.TopicCommand, deploy.TopicDeployment), e.ScanEvery, e.answerLate, func(err error) {
		e.Logger.Error("cannot answer commands for stages that do not wait for approval; trying again", "error", err)
	})
	return nil
}

// answerLate answers the commands that Execute does not answer. It returns how many
// commands stay open; after an error this includes those that it has not processed.
func (e *Executor) answerLate(ctx context.Context) (left int, err error) {
	commands, err := openCommands(ctx, e.Store)
	if err != nil {
		return 0, err
	}
	for i, c := range commands {
		open, refusal, err := e.verdict(ctx, c)
		if err == nil && !open {
			err = finish(ctx, e.Store, c, refusal)
		}
		if err != nil {
			return left + len(commands) - i, err
		}
		if open {
			left++
		}
	}
	return left, nil
}

// verdict reports whether c stays open, because the stage runs or will run and Execute
// answers it. Otherwise refusal is the reason for the rejection, or nil if the vote was
// stored before the stage ended. err is an error of the store.
func (e *Executor) verdict(ctx context.Context, c deploy.Command) (open bool, refusal, err error) {
	d, err := e.Store.Deployment(ctx, c.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return false, err, nil
	}
	if err != nil {
		return false, nil, err
	}
	stage := d.Stage(c.StageID)
	switch {
	case stage == nil:
		return false, deploy.Errorf(deploy.NotFound, "deployment %s has no stage %q", d.ID, c.StageID), nil
	case stage.Name != deploy.StageWaitApproval:
		return false, deploy.Errorf(deploy.Invalid, "stage %s is a %s stage; only %s can be approved or rejected", stage.ID, stage.Name, deploy.StageWaitApproval), nil
	case !stage.Status.Completed() && !d.Status.Completed() && d.Status != deploy.RollingBack:
		return true, nil, nil
	}
	r, err := recordOf(*stage)
	switch {
	case err != nil:
		return false, err, nil
	case r.holds(c.ID):
		return false, nil, nil
	case !stage.Status.Completed():
		return false, deploy.Errorf(deploy.Invalid, "the stage did not run and will not: the deployment is %s", d.Status), nil
	}
	return false, deploy.Errorf(deploy.Invalid, "the stage has ended already: it is %s", stage.Status), nil
}
