package main

import (
	"context"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
)

const (
	manyRollouts  = 200
	rolloutRounds = 2
)

// measureRollouts lets 200 rollouts go on at once and measures from the moment the
// API server shows that one is complete to the end of its stage. When it is
// complete an independent watch decides.
func measureRollouts(ctx context.Context, e *environment) error {
	client, err := e.client(ctx, "bench-rollouts")
	if err != nil {
		return err
	}
	s, err := e.newScene(ctx, "rollouts", agenttest.Options{Interval: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	defer s.agent.Close()
	f := fleet{dir: "apps", namespace: "bench-rollouts", count: manyRollouts, replicas: 2, template: web}
	var ends []time.Duration
	early := 0
	for round := range rolloutRounds + 1 {
		tag := fmt.Sprintf("v%d", round)
		w, err := watchRollouts(ctx, client, f.namespace, tag, f.count)
		if err != nil {
			return err
		}
		p, err := s.pass(ctx, tag, f.files(tag, tag), f.count)
		if err == nil {
			err = w.wait(ctx)
		}
		complete := w.close()
		if err != nil {
			return err
		}
		if round == 0 {
			continue // first contact
		}
		for name, end := range stageEnds(p.deployments) {
			took := end.Sub(complete[name])
			if took < -20*time.Millisecond { // the two watches are not the same
				early++
			}
			ends = append(ends, max(0, took))
		}
	}
	e.info("rollouts.measured", float64(len(ends)), "")
	e.info("rollouts.ended_before_the_watch_saw_it", float64(early), "")
	e.atMost("rollouts.stage_end_after_completion.p50", milliseconds(median(ends)), "ms", 100)
	e.atMost("rollouts.stage_end_after_completion.p99", milliseconds(quantile(ends, 0.99)), "ms", 500)
	e.info("rollouts.stage_end_after_completion.worst", milliseconds(worst(ends)), "ms")
	return s.agent.Close()
}
