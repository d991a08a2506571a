package main

import (
	"context"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// pace is the time between two commits after the script.
const pace = 20 * time.Second

// ongoing are the commits after the script, one after the other: those of people who work on
// while somebody looks at the page.
type ongoing struct {
	d    *demo
	n    int // commits so far
	next time.Time
}

// commit commits when it is time to.
func (o *ongoing) commit(all []*modelv1.Deployment) error {
	if time.Now().Before(o.next) {
		return nil
	}
	o.next = time.Now().Add(pace)
	o.n++
	version := o.d.stage.later(o.n)
	var err error
	switch o.n % 4 {
	case 1:
		err = o.d.repo.commitImage(worked, version, "Deploy "+version)
	case 2:
		err = o.d.repo.commitChange(kustomized+"/kustomization.yaml", firstGreeting, "hello from "+version, "Greet from "+version)
	case 3:
		if waits(all, gated) {
			return nil
		}
		err = o.d.repo.commitImage(gated, version, "Deploy "+version+" after approval on the page")
	default:
		err = o.d.repo.commitImage(worked, badTag, "Deploy an image that does not exist, again")
	}
	if err == nil {
		o.d.watch.since(o.d.repo.Head(), time.Now())
	}
	return err
}

// waits reports whether a deployment of an application has not ended.
func waits(all []*modelv1.Deployment, app string) bool {
	for _, d := range all {
		if d.ApplicationName == app && d.CompletedAtMs == 0 {
			return true
		}
	}
	return false
}

// stayUp says how to go on by hand, goes on deploying, and prints what the agent does until the
// person ends the demo.
func (d *demo) stayUp(ctx context.Context) error {
	d.handOver()
	if err := d.showPage(ctx); err != nil {
		return err
	}
	d.out.note("The agent keeps running, and its actions are printed here; a commit follows every %s. Ctrl-C ends everything.", pace)
	d.out.gap()
	commits := &ongoing{d: d, next: time.Now().Add(pace)}
	err := d.agent.Await(ctx, "Ctrl-C", 365*24*time.Hour, func(ctx context.Context) (bool, error) {
		all, err := d.watch.poll(ctx)
		if err == nil {
			err = commits.commit(all)
		}
		return false, err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
