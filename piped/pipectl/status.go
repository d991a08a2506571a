package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newStatus(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the agent: queues, repositories, clusters, store.",
		Long: `Show the state of the agent: its queues, repositories, clusters, store and
receivers, how scripts are isolated, and which deployments wait for whose
approval since when.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.GetStatusResponse, error) {
				resp, err := c.control.GetStatus(ctx, &controlv1.GetStatusRequest{})
				if err != nil {
					return nil, failed("failed to get the status", err)
				}
				return resp, nil
			}, (*printer).status)
		},
	}
	return required(cmd)
}

func (p *printer) status(s *controlv1.GetStatusResponse) error {
	a := s.GetAgent()
	disabled := ""
	if a.GetDisabled() {
		disabled = fmt.Sprintf("nothing is triggered until 'pipectl piped enable --piped-id=%s'", a.GetPipedId())
	}
	return errors.Join(
		p.fields(
			field{"Agent", named(a.GetName(), a.GetPipedId())},
			field{"Disabled", cell{text: disabled, color: yellow}},
			field{"Version", a.GetVersion()},
			field{"Built from", a.GetBuildCommit()},
			field{"Go", a.GetGoVersion()},
			field{"Started", p.when(a.GetStartedAtMs())},
			field{"Configuration of", p.when(a.GetConfigLoadedAtMs())},
			field{"Newer one refused", cell{text: a.GetConfigError(), color: red}},
			field{"Scripts", scripts(s.GetScripts())},
			field{"Applications", syncStates(s.GetSyncStates())},
		),
		p.section("Deployments that wait for approval", p.approvals(s)),
		p.section("Queues", p.queues(s)),
		p.section("Repositories", p.repositories(s)),
		p.section("Clusters", p.clusters(s)),
		p.section("Kinds that cannot be watched", p.watchProblems(s)),
		p.section("Store", p.store(s.GetStore())),
		p.section("Replicas", p.replicas(s.GetStore())),
		p.section("Receivers of notifications", p.receivers(s)),
		p.section("Abandoned notifications", p.deadLetters(s)),
	)
}

// state is "good" in green, or a problem in red.
func state(good, problem string) cell {
	if problem != "" {
		return cell{text: problem, color: red}
	}
	return cell{text: good, color: green}
}

// scripts describes the isolation of scripts; "" for an older agent.
func scripts(s *controlv1.ScriptsStatus) cell {
	switch {
	case s.GetError() != "":
		return cell{text: "refused: " + s.GetError(), color: red}
	case s.GetIsolation() == "":
		return cell{}
	}
	c := cell{text: fmt.Sprintf("isolation %s, ended by %s: %s", s.GetIsolation(), s.GetEndedBy(), s.GetHolds())}
	if s.GetIsolation() == "none" {
		c.color = yellow
	}
	return c
}

func (p *printer) approvals(s *controlv1.GetStatusResponse) *table {
	t := newTable(flexible("APPLICATION"), fixed("DEPLOYMENT"), flexible("WAITS FOR"))
	for _, d := range s.GetApprovals() {
		t.add(d.GetApplicationName(), d.GetDeploymentId(), p.waits(d.GetWait()))
	}
	return t
}

func (p *printer) queues(s *controlv1.GetStatusResponse) *table {
	t := newTable(fixed("NAME"), fixed("WAITING"), fixed("ACTIVE"), fixed("LIMIT"), fixed("OLDEST"))
	for _, q := range s.GetQueues() {
		limit := ""
		if q.GetLimit() > 0 {
			limit = fmt.Sprint(q.GetLimit())
		}
		t.add(q.GetName(), q.GetWaiting(), q.GetActive(), limit, p.age(q.GetOldestWaitingSinceMs()))
	}
	return t
}

func (p *printer) repositories(s *controlv1.GetStatusResponse) *table {
	t := newTable(fixed("ID"), flexible("REMOTE"), fixed("BRANCH"), fixed("HEAD"), fixed("APPLICATIONS"), fixed("CHECKED"), flexible("STATE"))
	for _, r := range s.GetRepositories() {
		t.add(r.GetId(), r.GetRemote(), r.GetBranch(), shortHash(r.GetHead()), r.GetApplications(), p.age(r.GetCheckedAtMs()), state("ok", r.GetError()))
	}
	return t
}

func (p *printer) clusters(s *controlv1.GetStatusResponse) *table {
	t := newTable(fixed("NAME"), fixed("VERSION"), fixed("WATCHED"), flexible("STATE"))
	for _, c := range s.GetClusters() {
		problem := c.GetError()
		if !c.GetReachable() && problem == "" {
			problem = "not reached yet"
		}
		t.add(c.GetName(), c.GetVersion(), count(int(c.GetWatchedObjects()), "object"), state("reachable", problem))
	}
	return t
}

// watchProblems returns a row for each kind that cannot be watched.
func (p *printer) watchProblems(s *controlv1.GetStatusResponse) *table {
	t := newTable(fixed("CLUSTER"), fixed("KIND"), fixed("SINCE"), flexible("WHY"))
	for _, c := range s.GetClusters() {
		for _, w := range c.GetWatchProblems() {
			t.add(c.GetName(), w.GetKind(), p.age(w.GetFailingSinceMs()), state("", w.GetError()))
		}
	}
	return t
}

// syncStates counts applications by sync state, such as "3 SYNCED, 1 OUT_OF_SYNC".
func syncStates(counts []*controlv1.SyncStateCount) string {
	var out []string
	for _, c := range counts {
		out = append(out, fmt.Sprintf("%d %s", c.GetApplications(), c.GetStatus()))
	}
	return strings.Join(out, ", ")
}

func (p *printer) store(s *controlv1.StoreStatus) *table {
	t := newTable(fixed("ENGINE"), fixed("SCHEMA"), fixed("SIZE"), flexible("STATE"))
	if s != nil {
		ok := "ok"
		if n := len(s.GetStandbys()); n > 0 {
			ok += fmt.Sprintf(", %d standing by: %s", n, strings.Join(s.GetStandbys(), ", "))
		}
		t.add(s.GetEngine(), s.GetSchemaVersion(), size(s.GetSizeBytes()), state(ok, s.GetError()))
	}
	return t
}

// replicas returns a row for each replica that shares the work.
func (p *printer) replicas(s *controlv1.StoreStatus) *table {
	t := newTable(flexible("REPLICA"), fixed("VERSION"), fixed("STARTED"), fixed("PARTITIONS"), fixed("LAST HANDOVER"), fixed("DATABASE"))
	for _, r := range s.GetReplicas() {
		active := ""
		if r.GetActive() {
			active = "has it"
		}
		t.add(r.GetHost(), r.GetVersion(), p.age(r.GetStartedAtMs()), r.GetPartitions(), p.age(r.GetLastHandoverAtMs()), active)
	}
	return t
}

func (p *printer) receivers(s *controlv1.GetStatusResponse) *table {
	t := newTable(fixed("NAME"), fixed("PENDING"), fixed("OLDEST"), fixed("GIVEN UP"), flexible("STATE"))
	for _, r := range s.GetReceivers() {
		t.add(r.GetName(), r.GetPending(), p.age(r.GetOldestPendingSinceMs()), r.GetDeadLetterCount(), state("ok", r.GetError()))
	}
	return t
}

// deadLetters returns a row for each abandoned notification.
func (p *printer) deadLetters(s *controlv1.GetStatusResponse) *table {
	t := newTable(fixed("RECEIVER"), fixed("EVENT"), fixed("DEPLOYMENT"), fixed("ATTEMPTS"), fixed("GIVEN UP"), flexible("WHY"))
	for _, r := range s.GetReceivers() {
		for _, d := range r.GetDeadLetters() {
			t.add(r.GetName(), d.GetEvent(), d.GetDeploymentId(), d.GetAttempts(), p.age(d.GetGivenUpAtMs()), state("", d.GetError()))
		}
	}
	return t
}

// size formats bytes in MiB; "" for 0.
func size(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
