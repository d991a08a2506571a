package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/git/gittest"
)

const (
	idleApplications = 50
	idleFor          = 2 * time.Minute
	defaultInterval  = 15 * time.Second
	clockTicks       = 100 // USER_HZ, per second, on every Linux that Go supports
)

// measureIdle deploys 50 applications and then watches the agent do nothing, and
// what it asks the Git server meanwhile.
func measureIdle(ctx context.Context, e *environment) (err error) {
	if _, err := e.client(ctx, "bench-idle"); err != nil {
		return err
	}
	repo, err := e.newRepo("idle")
	if err != nil {
		return err
	}
	remote, err := gittest.ServeHTTP(repo.Dir, gittest.HTTPOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remote.Close()) }()
	agent, err := e.start(ctx, "idle", repo, agenttest.Options{Interval: defaultInterval, Remote: remote.URL})
	if err != nil {
		return err
	}
	defer agent.Close()
	s := &scene{repo: repo, agent: agent}
	all := map[string]string{}
	for i := range idleApplications {
		maps.Copy(all, files(fmt.Sprintf("app-%02d", i), "bench-idle", 1, "v1"))
	}
	commit, err := s.push("all applications", all)
	if err != nil {
		return err
	}
	for i := range idleApplications {
		if _, err := s.succeeded(ctx, appID(fmt.Sprintf("app-%02d", i)), commit); err != nil {
			return err
		}
	}
	peak, err := memory(s.agent.PID(), "VmHWM")
	if err != nil {
		return err
	}
	time.Sleep(10 * time.Second) // what the deployments still cause is over
	before, err := cpuTime(s.agent.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	requests, perHour, err := watchRequests(ctx, remote, idleFor)
	if err != nil {
		return err
	}
	after, err := cpuTime(s.agent.PID())
	if err != nil {
		return err
	}
	rss, err := memory(s.agent.PID(), "VmRSS")
	if err != nil {
		return err
	}
	file, err := memory(s.agent.PID(), "RssFile")
	if err != nil {
		return err
	}
	e.info("idle.peak_rss_while_deploying", peak, "MiB")
	e.info("idle.rss_of_the_program_file", file, "MiB")
	e.atMost("idle.cpu", 100*float64(after-before)/float64(time.Since(began)), "% of a core", 1)
	e.atMost("idle.rss", rss, "MiB", 80)
	e.info("idle.requests", float64(requests), "in "+idleFor.String())
	e.atMost("idle.requests_per_repository_and_hour", perHour, "", mostPerHour)
	return s.agent.Close()
}

// cpuTime returns the processor time a process has used.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses; utime and stime are 14 and 15.
	fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / clockTicks, err
}

// atRest waits until a process has used less than a twentieth of a core for a time, in each of
// its seconds.
func atRest(ctx context.Context, pid int, quiet time.Duration) error {
	before, err := cpuTime(pid)
	for rest := time.Duration(0); err == nil && rest < quiet; rest += time.Second {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		var now time.Duration
		if now, err = cpuTime(pid); now-before > time.Second/20 {
			rest = -time.Second
		}
		before = now
	}
	return err
}

// memory returns a memory figure of a process in MiB.
func memory(pid int, name string) (float64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, name)
}
