package figures_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
)

var postgres pgtest.Server

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// TestFiguresAreThoseOfTheTransitionLog creates a random history and recomputes the
// figures of random ranges and applications from the transition log and the triggers
// alone.
func TestFiguresAreThoseOfTheTransitionLog(t *testing.T) {
	for engine, dsn := range map[string]func(testing.TB) string{
		"SQLite": storetest.Ready, "PostgreSQL": func(t testing.TB) string { return postgres.NewDSN(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			h := newHistory(t, dsn(t))
			for range 120 {
				h.step()
			}
			log := h.read()
			reader := figures.NewReader(h.store, h.clock)
			rapid.Check(t, func(rt *rapid.T) {
				q := h.drawQuery(rt)
				got, err := reader.Figures(context.Background(), q)
				if err != nil {
					rt.Fatal(err)
				}
				if diff := gocmp.Diff(recompute(log, q), got, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateEmpty()); diff != "" {
					rt.Fatalf("%+v (-log +figures):\n%s", q, diff)
				}
			})
		})
	}
}

// history is a random sequence of deployments.
type history struct {
	t     *testing.T
	store *store.Store
	rand  *rand.Rand
	now   time.Time
	apps  []deploy.Application
	ids   []string // all deployments
	open  []string // pending deployments
}

func newHistory(t *testing.T, dsn string) *history {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &history{t: t, rand: rand.New(rand.NewPCG(seed, 0)), now: from}
	h.store = storetest.Open(t, dsn, h.clock)
	for _, name := range []string{"api", "db", "queue", "web"} {
		app := deploy.Application{ID: "app-" + name, Name: name, Kind: deploy.KindKubernetes}
		if len(h.apps) == 3 {
			app.Name = h.apps[0].Name // names are not unique
		}
		app.Labels = map[string]string{"tier": []string{"back", "front"}[len(h.apps)%2]}
		if _, err := h.store.PutApplication(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		h.apps = append(h.apps, app)
	}
	return h
}

func (h *history) clock() time.Time { return h.now }

func pick[T any](h *history, of ...T) T { return of[h.rand.IntN(len(of))] }

// step advances the time, then creates or ends a deployment.
func (h *history) step() {
	h.now = h.now.Add(time.Duration(1+h.rand.IntN(1000)) * time.Minute / 10)
	if len(h.open) == 0 || h.rand.IntN(2) == 0 {
		h.create()
		return
	}
	i := h.rand.IntN(len(h.open))
	id := h.open[i]
	h.open = slices.Delete(h.open, i, i+1)
	d, err := h.store.Deployment(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	if d.Status == deploy.Pending { // it may have been superseded
		h.end(id)
	}
}

func (h *history) create() {
	app, id := pick(h, h.apps...), fmt.Sprintf("d%03d", len(h.ids))
	d := deploy.Deployment{
		ID: id, ApplicationID: app.ID, ApplicationName: app.Name, Status: deploy.Pending,
		Trigger: deploy.Trigger{
			Kind: pick(h, deploy.OnCommit, deploy.OnCommit, deploy.OnCommit, deploy.OnCommand, deploy.OnOutOfSync, deploy.OnChain), TakeOver: h.rand.IntN(9) == 0, At: h.now,
			Commit: deploy.Commit{Hash: id, At: h.now.Add(time.Duration(30-h.rand.IntN(3000)) * time.Minute)},
		},
	}
	if h.rand.IntN(10) == 0 {
		d.Trigger.Commit.At = time.Time{}
	}
	if _, err := h.store.CreateDeployment(h.t.Context(), store.NewDeployment{Deployment: d, Supersede: h.rand.IntN(2) == 0}); err != nil {
		h.t.Fatal(err)
	}
	h.ids, h.open = append(h.ids, id), append(h.open, id)
}

// end ends a pending deployment after some time.
func (h *history) end(id string) {
	move := func(fn func(d *deploy.Deployment) error) {
		h.now = h.now.Add(time.Duration(h.rand.IntN(600)) * time.Second)
		if _, err := h.store.UpdateDeployment(h.t.Context(), id, fn); err != nil {
			h.t.Fatal(err)
		}
	}
	complete := func(to deploy.Status) {
		move(func(d *deploy.Deployment) error { return d.Complete(to, "", h.now) })
	}
	run := func() {
		move(func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, h.now) })
		move(func(d *deploy.Deployment) error { return d.Start(h.now) })
	}
	switch pick(h, "success", "success", "success", "rolled back", "cannot plan", "cancelled", "cancelled and rolled back") {
	case "success":
		run()
		complete(deploy.Success)
	case "rolled back":
		run()
		move(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Failure, "", h.now) })
		complete(deploy.Failure)
	case "cannot plan":
		complete(deploy.Failure)
	case "cancelled":
		complete(deploy.Cancelled)
	case "cancelled and rolled back":
		run()
		move(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Cancelled, "", h.now) })
		complete(deploy.Cancelled)
	}
}

// logged is a deployment with the last entry of its transition log.
type logged struct {
	app     deploy.Application
	trigger deploy.Trigger
	last    deploy.Transition
}

func (h *history) read() (log []logged) {
	for _, id := range h.ids {
		d, err := h.store.Deployment(h.t.Context(), id)
		if err != nil {
			h.t.Fatal(err)
		}
		moves, err := h.store.Transitions(h.t.Context(), id)
		if err != nil {
			h.t.Fatal(err)
		}
		app := h.apps[slices.IndexFunc(h.apps, func(a deploy.Application) bool { return a.ID == d.ApplicationID })]
		log = append(log, logged{app, d.Trigger, moves[len(moves)-1]})
	}
	return log
}

func (h *history) drawQuery(rt *rapid.T) deploy.FiguresQuery {
	minutes := int(h.now.Sub(from) / time.Minute)
	begin := rapid.IntRange(0, minutes-1).Draw(rt, "begin")
	q := deploy.FiguresQuery{From: at(begin), To: at(rapid.IntRange(begin+1, minutes).Draw(rt, "end"))}
	for i, app := range h.apps {
		if rapid.IntRange(0, 3).Draw(rt, fmt.Sprintf("application %d", i)) == 0 {
			q.ApplicationIDs = append(q.ApplicationIDs, app.ID)
		}
	}
	if rapid.IntRange(0, 2).Draw(rt, "labels") == 0 {
		q.Labels = map[string]string{"tier": rapid.SampledFrom([]string{"back", "front", "none"}).Draw(rt, "tier")}
	}
	return q
}

// recompute computes each figure directly from its definition.
func recompute(log []logged, q deploy.FiguresQuery) deploy.DeliveryReport {
	report := deploy.DeliveryReport{From: q.From, To: q.To}
	var chosen []logged
	apps := map[string][]logged{}
	for _, d := range log {
		if (len(q.ApplicationIDs) > 0 && !slices.Contains(q.ApplicationIDs, d.app.ID)) || (len(q.Labels) > 0 && q.Labels["tier"] != d.app.Labels["tier"]) {
			continue
		}
		if deploy.Status(d.last.To).Completed() && !d.last.At.Before(q.From) && d.last.At.Before(q.To) {
			chosen, apps[d.app.ID] = append(chosen, d), append(apps[d.app.ID], d)
		}
	}
	report.Total = recomputeOne(chosen, log, q)
	for id, of := range apps {
		f := recomputeOne(of, log, q)
		f.ApplicationID, f.ApplicationName = id, of[0].app.Name
		report.Applications = append(report.Applications, f)
	}
	slices.SortFunc(report.Applications, func(a, b deploy.DeliveryFigures) int {
		return cmp.Or(cmp.Compare(a.ApplicationName, b.ApplicationName), cmp.Compare(a.ApplicationID, b.ApplicationID))
	})
	return report
}

func recomputeOne(chosen, log []logged, q deploy.FiguresQuery) (f deploy.DeliveryFigures) {
	var leads, restores []float64
	for _, d := range chosen {
		switch d.last.To {
		case "SUCCESS":
			f.Succeeded++
			fromGit := d.trigger.Kind == deploy.OnCommit && !d.trigger.TakeOver && !d.trigger.Commit.At.IsZero()
			if lead := d.last.At.Sub(d.trigger.Commit.At); fromGit && lead >= 0 {
				leads = append(leads, float64(lead))
			}
		case "FAILURE":
			f.Failed++
			next := math.Inf(1)
			for _, other := range log {
				if other.app.ID == d.app.ID && other.last.To == "SUCCESS" && other.last.At.After(d.last.At) {
					next = min(next, float64(other.last.At.Sub(d.last.At)))
				}
			}
			if !math.IsInf(next, 1) {
				restores = append(restores, next)
			}
		case "CANCELLED":
			f.Cancelled++
		}
	}
	f.DeploymentFrequency = new(float64(f.Succeeded) / q.To.Sub(q.From).Hours() * 24)
	if n := f.Succeeded + f.Failed; n > 0 {
		f.ChangeFailureRate = new(float64(f.Failed) / float64(n))
	}
	f.LeadTimeMedian, f.LeadTimeP90, f.TimeToRestoreMedian = middle(leads), reaching(leads, 0.9), middle(restores)
	return f
}

// middle returns the mean of the smallest value that at least half of the values do not
// exceed and the largest that at least half are not below.
func middle(values []float64) *time.Duration {
	low, high := reaching(values, 0.5), math.Inf(-1)
	if low == nil {
		return nil
	}
	for _, v := range values {
		above := 0
		for _, other := range values {
			if other >= v {
				above++
			}
		}
		if 2*above >= len(values) {
			high = max(high, v)
		}
	}
	return new(time.Duration((float64(*low) + high) / 2))
}

// reaching returns the smallest value that at least this share of the values do not exceed.
func reaching(values []float64, share float64) *time.Duration {
	best := math.Inf(1)
	for _, v := range values {
		below := 0
		for _, other := range values {
			if other <= v {
				below++
			}
		}
		if float64(below) >= share*float64(len(values))-1e-9 {
			best = min(best, v)
		}
	}
	if math.IsInf(best, 1) {
		return nil
	}
	return new(time.Duration(best))
}
