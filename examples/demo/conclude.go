package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// conclude shows all applications and deployments and says what was not as it
// should be.
func (d *demo) conclude(ctx context.Context) error {
	if err := d.expectStates(ctx); err != nil {
		return err
	}
	all, err := d.watch.poll(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"APPLICATION", "COMMIT", "TRIGGER", "DURATION", "STATUS"}}
	for _, it := range all {
		took := time.Duration(it.CompletedAtMs-it.CreatedAtMs) * time.Millisecond
		commit := shortHash(it.Trigger.Commit.Hash) + " " + it.Trigger.Commit.Message
		rows = append(rows, []string{it.ApplicationName, commit, triggerName(it.TriggerKind), seconds(took), statusName(it.Status)})
	}
	d.out.table(rows)
	d.out.gap()
	if err := d.measure(ctx, all); err != nil {
		return err
	}
	for _, text := range d.differences {
		d.out.bad(text)
	}
	d.compare(all)
	if len(d.differences) == 0 {
		d.out.good("every deployment ended as it should")
	}
	return nil
}

// measure shows the rollouts and the delivery figures of it all, as a person asks for
// them, and checks the figures against the deployments that were seen.
func (d *demo) measure(ctx context.Context, all []*modelv1.Deployment) error {
	for _, args := range [][]string{
		{"application", "rollouts", "--outcome", "COMPLETE,FAILED,SUPERSEDED,TIMED_OUT,GONE", "--limit", "100"},
		{"figures", "--since", "1h"},
	} {
		if err := d.agent.pipectl(ctx, d.out, args...); err != nil {
			return err
		}
		d.out.gap()
	}
	ended := map[modelv1.DeploymentStatus]int32{}
	for _, it := range all {
		if it.ApplicationName != previewName { // previews are left out of the figures
			ended[it.Status]++
		}
	}
	resp, err := d.agent.Control.GetDeliveryFigures(ctx, &controlv1.GetDeliveryFiguresRequest{FromMs: d.agent.started.UnixMilli()})
	if err != nil {
		return fmt.Errorf("ask for the delivery figures: %w", err)
	}
	got := resp.Total
	if got.Succeeded != ended[success] || got.Failed != ended[failure] || got.LeadTimeMedianMs == nil || got.TimeToRestoreMedianMs == nil {
		d.differ("the delivery figures are %v, but %d deployments succeeded and %d failed", got, ended[success], ended[failure])
	}
	return nil
}

// compare notes deployments that the script did not cause; each expectation
// accounts for one.
func (d *demo) compare(all []*modelv1.Deployment) {
	open := slices.Clone(d.expected)
	for _, it := range all {
		if i := slices.IndexFunc(open, func(e expectation) bool { return e.matches(it) }); i >= 0 {
			open = slices.Delete(open, i, i+1)
			continue
		}
		d.differ("unexpected deployment %s", expectation{it.ApplicationName, it.Trigger.Commit.Hash, it.TriggerKind})
	}
}

// handOver prints where everything is and what can be tried.
func (d *demo) handOver() {
	d.out.heading("Where it is")
	d.out.fact("page", d.page())
	d.out.fact("control API", d.agent.Address)
	d.out.fact("health", "http://"+d.agent.WebAddress+"/healthz")
	d.out.fact("owner key", d.agent.KeyFile)
	d.out.fact("log", d.agent.LogFile)
	d.out.fact("kubeconfig", d.kubeconfig())
	d.out.fact("repository", d.repo.Dir)

	d.out.heading("What to try in another terminal")
	flags := strings.Join(d.agent.pipectlFlags(), " ")
	clone := filepath.Join(d.dir, "apps")
	for _, command := range []string{
		fmt.Sprintf("PATH=%s:$PATH; flags='%s'", d.agent.bin, flags),
		"pipectl application list $flags",
		"pipectl deployment list $flags",
		"pipectl application sync $flags --app-id " + d.subjectID,
		fmt.Sprintf("git clone -c user.name=me -c user.email=me@example.com %s %s", d.repo.Dir, clone),
		fmt.Sprintf("sed -i 's/%s/%s/' %s", d.stage.images.fixed, d.stage.images.later, filepath.Join(clone, workload(subject))),
		fmt.Sprintf("git -C %s commit -am 'Deploy %s' && git -C %[1]s pull --rebase && git -C %[1]s push", clone, d.stage.images.later),
	} {
		d.out.command(command)
	}
	d.out.gap()
}
