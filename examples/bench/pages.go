package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web/page/browsertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	pagesNamespace = "bench-pages"
	pagesApps      = 50
	pagesTeams     = 10 // labels of the applications, by which lists are filtered
	pagesRounds    = 2

	pagesNow, pagesList, pagesOfApps, pagesOfDeployments = 80, 60, 40, 20
	pagesOpen                                            = pagesNow + pagesList + pagesOfApps + pagesOfDeployments
)

// canary is the configuration of an application that is deployed in four stages.
const canary = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: %s
  labels: {team: team-%d}
  pipeline:
    stages:
      - {name: K8S_CANARY_ROLLOUT, with: {replicas: 1}}
      - {name: WAIT, with: {duration: 5s}}
      - {name: K8S_PRIMARY_ROLLOUT}
      - {name: K8S_CANARY_CLEAN}
`

// pagesBench is one run of measurePages.
type pagesBench struct {
	*environment
	*scene
	tokens []string // of sessions, one for each page
	tag    int
	reads  *framesRead

	floor, open     usage
	floorPeak, peak float64                    // memory, in MiB
	bytes           int64                      // of events
	late            map[string][]time.Duration // by view: from an event until it arrived
}

// usage is what the agent needed for the same deployments.
type usage struct{ cpu, took []time.Duration }

// cores returns the mean number of busy cores.
func (u usage) cores() float64 { return float64(sum(u.cpu)) / float64(sum(u.took)) }

func sum(all []time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

// measurePages lets one commit deploy 50 applications in four stages, without any open page and
// with 200, in turns. An event is a stage that begins or a deployment that ends; its time is that
// of the transition in the store. The floor is the agent without open pages.
func measurePages(ctx context.Context, e *environment) (err error) {
	if _, err := e.client(ctx, pagesNamespace); err != nil {
		return err
	}
	s, err := e.newScene(ctx, "pages", agenttest.Options{Interval: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	defer s.agent.Close()
	b := &pagesBench{environment: e, scene: s, reads: newFramesRead(), late: map[string][]time.Duration{}}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for range pagesRounds {
		if err := b.round(ctx); err != nil {
			return err
		}
	}
	b.report()
	if err := b.chromium(ctx); err != nil {
		return err
	}
	return s.agent.Close()
}

// prepare opens a session for each page, of which one of four may deploy, and deploys for the first
// time.
func (b *pagesBench) prepare(ctx context.Context) error {
	if err := b.agent.Stop(); err != nil {
		return err
	}
	s, err := store.Open(ctx, "sqlite://"+filepath.Join(b.dir, "pages", "piped", "piped.db"), store.Options{})
	if err != nil {
		return err
	}
	sessions := access.Sessions{Store: s, MaxAge: func() time.Duration { return time.Hour }, Now: time.Now, Rand: rand.Reader}
	for i := range pagesOpen {
		name, role := fmt.Sprint("user-", i), deploy.ReadOnly
		if i%4 == 0 {
			role = deploy.ReadWrite
		}
		record, _, keyErr := access.NewAPIKey(name, name, role, time.Now(), rand.Reader)
		err = errors.Join(err, keyErr, s.CreateAPIKey(ctx, record))
		token, _, sessionErr := sessions.Open(ctx, deploy.Session{User: deploy.User{Subject: name}, KeyID: record.ID, Client: "page"})
		err = errors.Join(err, sessionErr)
		b.tokens = append(b.tokens, token)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("store sessions: %w", err)
	}
	if err := b.agent.Restart(ctx); err != nil {
		return err
	}
	_, err = b.deploy(ctx)
	return err
}

// deploy lets one commit deploy all applications.
func (b *pagesBench) deploy(ctx context.Context) (passage, error) {
	b.tag++
	all := map[string]string{}
	for i := range pagesApps {
		name := fmt.Sprintf("app-%02d", i)
		maps.Copy(all, files(name, pagesNamespace, 2, fmt.Sprint("v", b.tag)))
		all[name+"/app.pipecd.yaml"] = fmt.Sprintf(canary, name, i%pagesTeams)
	}
	return b.pass(ctx, fmt.Sprint("version ", b.tag), all, pagesApps)
}

// used adds what the agent uses while do runs.
func (b *pagesBench) used(u *usage, do func() error) error {
	before, err := cpuTime(b.agent.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	after, err := cpuTime(b.agent.PID())
	u.cpu, u.took = append(u.cpu, after-before), append(u.took, time.Since(began))
	return err
}

// round deploys without open pages, then with them.
func (b *pagesBench) round(ctx context.Context) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	if err := b.used(&b.floor, func() error { _, err := b.deploy(ctx); return err }); err != nil {
		return err
	}
	peak, err := memory(b.agent.PID(), "VmHWM")
	if err != nil {
		return err
	}
	b.floorPeak = max(b.floorPeak, peak)
	_, err = b.withPages(ctx, &b.open, b.late)
	return err
}

// quiet waits until the agent does nothing, and lets the peak of its memory begin anew.
func (b *pagesBench) quiet(ctx context.Context) error {
	if err := atRest(ctx, b.agent.PID(), time.Second); err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.agent.PID()), []byte("5"), 0o200)
}

// withPages deploys while the pages are open, and returns the events.
func (b *pagesBench) withPages(ctx context.Context, u *usage, late map[string][]time.Duration) ([]pageEvent, error) {
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	group, run := errgroup.WithContext(run)
	pages, done, err := b.deployBefore(run, group, u)
	peak, memErr := memory(b.agent.PID(), "VmHWM")
	stop()
	if err := errors.Join(err, memErr, group.Wait()); err != nil {
		return nil, err
	}
	b.peak = max(b.peak, peak)
	for _, p := range pages {
		b.bytes += p.bytes.Load()
	}
	events, err := b.events(ctx, done)
	if err != nil {
		return nil, err
	}
	return events, measureArrivals(events, pages, late)
}

// deployBefore opens the pages and deploys.
func (b *pagesBench) deployBefore(ctx context.Context, group *errgroup.Group, u *usage) (pages []*openPage, done passage, err error) {
	if pages, err = b.openPages(ctx, group); err != nil {
		return nil, done, err
	}
	time.Sleep(2 * time.Second) // what the opening causes is over
	var opening errgroup.Group
	var deployments []*openPage
	opening.Go(func() (err error) { deployments, err = b.openDeployments(ctx, group); return err })
	err = b.used(u, func() (err error) { done, err = b.deploy(ctx); return err })
	err = errors.Join(err, opening.Wait())
	time.Sleep(5 * time.Second) // until all have arrived
	return append(pages, deployments...), done, err
}

// openPages opens all but the pages of deployments.
func (b *pagesBench) openPages(ctx context.Context, group *errgroup.Group) ([]*openPage, error) {
	var paths []string
	for range pagesNow {
		paths = append(paths, "/")
	}
	for i := range pagesList {
		paths = append(paths, "/applications")
		if i >= pagesList/3 { // the others look at their team
			paths[len(paths)-1] = fmt.Sprintf("/applications?label%%3Ateam=team-%d", i%pagesTeams)
		}
	}
	for i := range pagesOfApps {
		paths = append(paths, fmt.Sprintf("/applications/app-%02d", i))
	}
	return b.openAll(ctx, group, paths, 0)
}

// openAll opens pages one after the other and follows their streams.
func (b *pagesBench) openAll(ctx context.Context, group *errgroup.Group, paths []string, first int) ([]*openPage, error) {
	var pages []*openPage
	for i, path := range paths {
		p := newOpenPage(b.agent.WebAddress, b.tokens[first+i], b.reads)
		streams, err := p.load(ctx, path)
		if err != nil {
			return pages, err
		}
		var open sync.WaitGroup
		for _, stream := range streams {
			open.Add(1)
			connected := sync.OnceFunc(open.Done)
			group.Go(func() error {
				defer connected()
				return p.follow(ctx, stream, connected)
			})
		}
		open.Wait()
		p.connected = time.Now()
		pages = append(pages, p)
	}
	return pages, nil
}

// openDeployments opens pages of deployments once they run.
func (b *pagesBench) openDeployments(ctx context.Context, group *errgroup.Group) ([]*openPage, error) {
	var paths []string
	err := b.agent.Await(ctx, "deployments that run", patience, func(ctx context.Context) (bool, error) {
		resp, err := b.agent.API.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{Limit: pagesOfDeployments, Statuses: []string{modelv1.DeploymentStatus_DEPLOYMENT_RUNNING.String()}})
		paths = nil
		for _, d := range resp.GetDeployments() {
			paths = append(paths, "/deployments/"+d.GetId())
		}
		return len(paths) == pagesOfDeployments, err
	})
	if err != nil {
		return nil, err
	}
	return b.openAll(ctx, group, paths, pagesOpen-pagesOfDeployments)
}

// pageEvent is a stage that begins, or the end of a deployment.
type pageEvent struct {
	app, name, deployment string
	place                 int
	at                    time.Time
}

// events returns what happened to deployments.
func (b *pagesBench) events(ctx context.Context, p passage) ([]pageEvent, error) {
	var all []pageEvent
	for _, d := range p.deployments {
		resp, err := b.agent.API.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: d.GetId()})
		if err != nil {
			return nil, err
		}
		for _, m := range resp.GetDeployment().GetTransitions() {
			place := slices.IndexFunc(d.GetStages(), func(s *modelv1.PipelineStage) bool { return s.GetId() == m.GetStageId() }) + 1
			switch {
			case place > 0 && m.GetTo() == modelv1.StageStatus_STAGE_RUNNING.String():
			case place == 0 && m.GetTo() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS.String():
				place = ended
			default:
				continue
			}
			all = append(all, pageEvent{d.GetApplicationId(), d.GetApplicationName(), d.GetId(), place, time.UnixMilli(m.GetAtMs())})
		}
	}
	if want := pagesApps * 5; len(all) != want {
		return nil, fmt.Errorf("%d events, expected %d", len(all), want)
	}
	return all, nil
}

// measureArrivals measures from each event until it arrived at each page that shows it.
func measureArrivals(events []pageEvent, pages []*openPage, late map[string][]time.Duration) error {
	for _, p := range pages {
		view, expected := viewOf(p.path), 0
		for _, e := range events {
			id, ok := shownAs(p.path, e)
			if !ok || e.at.Before(p.connected) {
				continue
			}
			expected++
			at := p.shown.at[id][e.place]
			if at.IsZero() {
				return fmt.Errorf("%s never showed that %s reached place %d, but %v", p.path, e.name, e.place, slices.Sorted(maps.Keys(p.shown.at[id])))
			}
			late[view] = append(late[view], at.Sub(e.at))
		}
		if expected == 0 && view != "deployment" {
			return fmt.Errorf("%s shows no event", p.path)
		}
	}
	return nil
}

// viewOf names the view of a path.
func viewOf(path string) string {
	switch {
	case path == "/":
		return "now"
	case strings.HasPrefix(path, "/deployments/"):
		return "deployment"
	case strings.HasPrefix(path, "/applications/"):
		return "application"
	}
	return "list"
}

// shownAs returns the ID by which a view shows an event; ok is false if it does not show it.
func shownAs(path string, e pageEvent) (id string, ok bool) {
	_, team, filtered := strings.Cut(path, "team-")
	switch viewOf(path) {
	case "deployment":
		return "", path == "/deployments/"+e.deployment
	case "application":
		return "", path == "/applications/"+e.name
	case "list":
		return e.app, !filtered || team == teamOf(e.name)
	}
	return e.app, true
}

// teamOf returns the number of the team of an application: there are ten.
func teamOf(name string) string { return name[len(name)-1:] }

// report prints the figures of all rounds.
func (b *pagesBench) report() {
	var all []time.Duration
	for _, view := range slices.Sorted(maps.Keys(b.late)) {
		late := b.late[view]
		all = append(all, late...)
		b.info("pages."+view+".event_seen.median", milliseconds(median(late)), "ms")
		b.info("pages."+view+".event_seen.p95", milliseconds(quantile(late, 0.95)), "ms")
		b.info("pages."+view+".event_seen.worst", milliseconds(worst(late)), "ms")
	}
	b.info("pages.open", pagesOpen, "")
	b.info("pages.events_seen", float64(len(all)), "")
	b.info("pages.event_seen.median", milliseconds(median(all)), "ms")
	b.atMost("pages.event_seen.p95", milliseconds(quantile(all, 0.95)), "ms", 300)
	b.info("pages.event_seen.worst", milliseconds(worst(all)), "ms")
	b.info("pages.floor.deployments", seconds(median(b.floor.took)), "s")
	b.info("pages.deployments", seconds(median(b.open.took)), "s")
	b.info("pages.floor.cores", b.floor.cores(), "")
	b.atMost("pages.cores", b.open.cores(), "", 0.3)
	b.info("pages.cpu_per_floor", ratioOf(b.open.cpu, b.floor.cpu), "x")
	b.info("pages.floor.rss_peak", b.floorPeak, "MiB")
	b.atMost("pages.rss_peak", b.peak, "MiB", 200)
	b.info("pages.event_bytes_per_page", float64(b.bytes)/pagesRounds/pagesOpen/1024, "KiB")
}

// recorded records in the browser which word each row shows from when on.
const recorded = `(() => {
	window.shown = [];
	const words = {};
	const look = () => {
		const at = Date.now(), rows = {};
		for (const row of document.querySelectorAll("[id^=now-], [id^=app-]")) rows[row.id] = row.querySelector(".word")?.textContent ?? "";
		for (const id of Object.keys(words)) if (!(id in rows)) rows[id] = "";
		for (const [id, word] of Object.entries(rows)) {
			if (words[id] === word) continue;
			words[id] = word;
			window.shown.push({ ID: id.slice(4), Word: word, At: at });
		}
	};
	look();
	new MutationObserver(look).observe(document.body, { childList: true, characterData: true, subtree: true });
})()`

// wordShown is a word that a row shows from a time on; "" once the row is gone.
type wordShown struct {
	ID, Word string
	At       int64
}

// chromium opens two of the views in Chromium, too, and measures there in one more round.
func (b *pagesBench) chromium(ctx context.Context) (err error) {
	browser, err := browsertest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, browser.Close()) }()
	return browsertest.Try(func(tb browsertest.TB) error {
		tabs := map[string]*browsertest.Tab{}
		for _, path := range []string{"/", "/applications"} {
			tab := browser.Tab(tb, "http://"+b.agent.WebAddress)
			if err := (&pageBench{environment: b.environment, agent: b.agent, tab: tab}).signIn(); err != nil {
				return err
			}
			tab.Open(path)
			tab.AwaitReady()
			tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
			browsertest.Eval[browsertest.Nothing](tab, recorded)
			tabs[path] = tab
		}
		opened := time.Now()
		imitated := map[string][]time.Duration{}
		events, err := b.withPages(ctx, &usage{}, imitated)
		if err != nil {
			return err
		}
		for path, tab := range tabs {
			shown := newArrivals(b.reads)
			for _, w := range browsertest.Eval[[]wordShown](tab, "window.shown") {
				place := placeOfWord(w.Word)
				if w.Word == "" {
					place = ended
				}
				if place > 0 {
					shown.reached(w.ID, place, time.UnixMilli(w.At))
				}
			}
			late := map[string][]time.Duration{}
			if err := measureArrivals(events, []*openPage{{path: path, connected: opened, shown: shown}}, late); err != nil {
				return fmt.Errorf("chromium: %w", err)
			}
			view := viewOf(path)
			b.info("pages.chromium."+view+".event_seen.median", milliseconds(median(late[view])), "ms")
			b.info("pages.chromium."+view+".event_seen.p95", milliseconds(quantile(late[view], 0.95)), "ms")
			b.info("pages.chromium."+view+".imitated.median", milliseconds(median(imitated[view])), "ms")
			b.info("pages.chromium."+view+".imitated.p95", milliseconds(quantile(imitated[view], 0.95)), "ms")
		}
		return nil
	})
}
