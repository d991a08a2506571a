package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the view of delivery.
const (
	deliveryRows   = 100 // applications that are listed
	deliveryBars   = 100 // bars of a group; more are too thin, and too much for a response
	deliveryValues = 20  // values of a label that are listed
	deliveryLabels = 8   // labels that are offered
)

// deliverySpans are the ranges that the view offers.
func deliverySpans() []span {
	return []span{{"30d", "30 d", "30 days", 30 * day}, {"90d", "90 d", "90 days", 90 * day}, {"1y", "1 year", "year", 365 * day}}
}

// interval is a range of time; to is exclusive.
type interval struct{ from, to time.Time }

// deliveryView is the view of the four figures.
type deliveryView struct {
	*scope
	daily   bool
	total   *controlv1.DeliveryFigures
	before  *controlv1.DeliveryFigures // of the range of the same length before
	buckets []deliveryRow              // the newest first
	unused  int                        // buckets before the first deployment, which are left out
	by      string                     // label of the groups; "" for applications
	labels  []string                   // that are offered
	groups  []deliveryRow
	more    int // applications that are not listed
}

// deliveryRow has the figures of a bucket, an application or a value of a label.
type deliveryRow struct {
	label   string
	title   string
	path    string
	at      int64 // begin of a bucket by its clock, in seconds; 0 for a group
	figures *controlv1.DeliveryFigures
	ended   string // address of the deployments behind it
	good    string // address of those that succeeded
	bad     string // address of those that failed
	bars    []deliveryBar
}

// deliveryBar is what ended in a bucket of a group, as it is drawn.
type deliveryBar struct {
	x, width, y, height string
	role                role
}

func showDelivery(v *visit) (*screen, error) {
	d, err := v.readDelivery()
	if err != nil {
		return nil, err
	}
	return &screen{title: "Delivery", nav: "Delivery", body: deliveryPageView(v, d)}, nil
}

func (v *visit) readDelivery() (*deliveryView, error) {
	q := v.query()
	s, err := v.readScope("/delivery", q, deliverySpans(), "90d")
	if err != nil {
		return nil, err
	}
	d := &deliveryView{scope: s, daily: q.Get("bucket") == "day", by: q.Get("by"), total: &controlv1.DeliveryFigures{}}
	if q.Get("since") == "" {
		s.from = bucketStart(s.from, d.daily)
	}
	if s.nothing() {
		return d, nil
	}
	resp, err := v.control.GetDeliveryFigures(v.ctx, d.request(d.interval(), true))
	if err != nil {
		return nil, err
	}
	before, err := v.control.GetDeliveryFigures(v.ctx, d.request(interval{s.from.Add(s.from.Sub(s.to)), s.from}, false))
	if err != nil {
		return nil, err
	}
	d.total, d.before = resp.GetTotal(), before.GetTotal()
	for d.unused = 0; d.unused < len(resp.Buckets) && ended(resp.Buckets[d.unused].Total) == 0; {
		d.unused++
	}
	for _, b := range slices.Backward(resp.Buckets[d.unused:]) {
		d.buckets = append(d.buckets, d.bucketRow(b, v.now))
	}
	if err := v.readOffered(d); err != nil {
		return nil, err
	}
	if d.by != "" {
		return d, v.readByLabel(d)
	}
	return d, v.readByApplication(d, resp.Applications)
}

// ended returns the number of deployments that count in figures.
func ended(f *controlv1.DeliveryFigures) int32 { return f.GetSucceeded() + f.GetFailed() }

// interval returns the range of the view.
func (d *deliveryView) interval() interval { return interval{d.from, d.to} }

// bucketStart returns the begin of the day or week of a time.
func bucketStart(t time.Time, daily bool) time.Time {
	back := 0
	if !daily {
		back = (int(t.Weekday()) + 6) % 7 // since Monday
	}
	return time.Date(t.Year(), t.Month(), t.Day()-back, 0, 0, 0, 0, t.Location())
}

// request asks for the figures of a range, divided or not.
func (d *deliveryView) request(at interval, divided bool) *controlv1.GetDeliveryFiguresRequest {
	req := &controlv1.GetDeliveryFiguresRequest{ApplicationIds: d.applications, Labels: d.scope.labels, FromMs: at.from.UnixMilli(), ToMs: at.to.UnixMilli()}
	if divided {
		req.TimeZone, req.Bucket = zoneName(at.to), controlv1.FiguresBucket_FIGURES_BUCKET_WEEK
		if d.daily {
			req.Bucket = controlv1.FiguresBucket_FIGURES_BUCKET_DAY
		}
	}
	return req
}

// row returns a row with the addresses of the deployments behind it.
func (d *deliveryView) row(figures *controlv1.DeliveryFigures, at interval, extra url.Values) deliveryRow {
	return deliveryRow{
		figures: figures,
		ended:   d.deploymentsPath(extra, at, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE),
		good:    d.deploymentsPath(extra, at, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS), bad: d.deploymentsPath(extra, at, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE),
	}
}

func (d *deliveryView) bucketRow(b *controlv1.FiguresInterval, now time.Time) deliveryRow {
	zone := now.Location()
	if zone == time.Local {
		zone = time.UTC // as the API divides
	}
	at := interval{time.UnixMilli(b.FromMs).In(zone), time.UnixMilli(b.ToMs).In(zone)}
	r := d.row(d.whole(b.Total), at, nil)
	_, offset := at.from.Zone()
	r.at, r.path, r.title = at.from.Unix()+int64(offset), r.ended, "from "+clock(at.from)+" until "+clock(at.to)
	r.label = "Week of " + at.from.Format("2 Jan 2006")
	if d.daily {
		r.label = at.from.Format("Mon 2 Jan 2006")
	}
	return r
}

// whole returns the figures of a bucket with the frequency of all of its days: the current bucket
// is short, and a rate of its first minutes would say nothing.
func (d *deliveryView) whole(f *controlv1.DeliveryFigures) *controlv1.DeliveryFigures {
	out := proto.CloneOf(f)
	days := 7.0
	if d.daily {
		days = 1
	}
	out.DeploymentFrequency = proto.Float64(float64(f.GetSucceeded()) / days)
	return out
}

// readOffered reads the labels by which the figures can be grouped.
func (v *visit) readOffered(d *deliveryView) error {
	found, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Facets: []string{"label"}, Limit: 1})
	for _, f := range found.GetFacets() {
		if f.Name != "label" {
			continue
		}
		for _, value := range f.Values[:min(len(f.Values), deliveryLabels)] {
			d.labels = append(d.labels, value.Value)
		}
	}
	if d.by != "" && !slices.Contains(d.labels, d.by) {
		d.labels = append(d.labels, d.by)
	}
	return err
}

// readByApplication reads a row for each application, with its buckets.
func (v *visit) readByApplication(d *deliveryView, list []*controlv1.DeliveryFigures) error {
	if len(list) > deliveryRows {
		d.more, list = len(list)-deliveryRows, list[:deliveryRows]
	}
	if len(list) == 0 {
		return nil
	}
	req := d.request(d.interval(), true)
	req.ApplicationIds, req.BucketApplications = nil, true
	skip := d.unused
	if len(d.buckets) > deliveryBars {
		req.Bucket, skip = controlv1.FiguresBucket_FIGURES_BUCKET_WEEK, d.unused/7
	}
	for _, f := range list {
		req.ApplicationIds = append(req.ApplicationIds, f.ApplicationId)
	}
	divided, err := v.control.GetDeliveryFigures(v.ctx, req)
	if err != nil {
		return err
	}
	for _, f := range list {
		ref := applicationRef(f.ApplicationId, f.ApplicationName)
		r := d.row(f, d.interval(), url.Values{"application": {ref}})
		r.label, r.path, r.title = f.ApplicationName, d.toggled("application", ref), "Show the figures of "+f.ApplicationName+" alone"
		if slices.Contains(d.q["application"], ref) {
			r.path, r.title = applicationPath(f.ApplicationId, f.ApplicationName), ""
		}
		var parts []*controlv1.DeliveryFigures
		for _, b := range divided.Buckets {
			at := slices.IndexFunc(b.Applications, func(a *controlv1.DeliveryFigures) bool { return a.ApplicationId == f.ApplicationId })
			if at < 0 {
				parts = append(parts, nil)
				continue
			}
			parts = append(parts, b.Applications[at])
		}
		r.bars = barsOf(parts[min(skip, len(parts)):])
		d.groups = append(d.groups, r)
	}
	return nil
}

// readByLabel reads a row for each value of a label.
func (v *visit) readByLabel(d *deliveryView) error {
	name := "label:" + d.by
	found, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Facets: []string{name}, Limit: 1})
	if err != nil {
		return err
	}
	for _, f := range found.Facets {
		if f.Name != name {
			continue
		}
		for _, value := range f.Values {
			if chosen, ok := d.scope.labels[d.by]; value.Value == "" || ok && chosen != value.Value {
				continue
			}
			if len(d.groups) == deliveryValues {
				d.more++
				continue
			}
			if err := v.readValue(d, value.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *visit) readValue(d *deliveryView, value string) error {
	req := d.request(d.interval(), true)
	req.Labels = map[string]string{d.by: value}
	for name, other := range d.scope.labels {
		req.Labels[name] = other
	}
	resp, err := v.control.GetDeliveryFigures(v.ctx, req)
	if err != nil {
		return err
	}
	r := d.row(resp.Total, d.interval(), url.Values{"label:" + d.by: {value}})
	r.label, r.path, r.title = value, d.with("label:"+d.by, value), "Show the figures of "+d.by+" "+value+" alone"
	var parts []*controlv1.DeliveryFigures
	for _, b := range resp.Buckets {
		parts = append(parts, b.Total)
	}
	r.bars = barsOf(parts[min(d.unused, len(parts)):])
	d.groups = append(d.groups, r)
	return nil
}

// barsHeight is the height of the drawing of a group, in pixels.
const barsHeight = 22

// barsOf draws the successes of each bucket, with the failures on top.
func barsOf(parts []*controlv1.DeliveryFigures) []deliveryBar {
	most := int32(1)
	for _, f := range parts {
		most = max(most, ended(f))
	}
	var out []deliveryBar
	for i, f := range parts {
		n := float64(max(len(parts), 12)) // few bars are not wide ones
		below := float64(barsHeight)
		add := func(count int32, r role) {
			if count > 0 {
				height := float64(count) / float64(most) * barsHeight
				below -= height
				out = append(out, deliveryBar{percent(float64(i) / n), percent(.72 / n), pixels(below), pixels(height), r})
			}
		}
		add(f.GetSucceeded(), roleOK)
		add(f.GetFailed(), roleBad)
	}
	return out
}

func pixels(n float64) string { return fmt.Sprintf("%.1f", max(n, 0)) }

// compared returns a figure of the range before; "" if nothing was measured.
func (d *deliveryView) compared(k figureKind) string {
	if before := k.figure(d.before); before != unmeasured && ended(d.before) > 0 {
		return before + " before"
	}
	return ""
}

// headline is the first sentence of the view.
func (d *deliveryView) headline() string {
	if ended(d.total) == 0 {
		return "No deployment ended " + d.words() + "."
	}
	text := plural(d.total.Succeeded, "deployment", "deployments") + " succeeded " + d.words() + ", " + fmt.Sprint(d.total.Failed) + " failed"
	if d.total.LeadTimeMedianMs != nil {
		text += "; half were live within " + millis(*d.total.LeadTimeMedianMs) + " of their commit"
	}
	return text + "."
}

// deploymentsPath returns the address of the deployments of a scope with a status that ended
// within a range.
func (s *scope) deploymentsPath(extra url.Values, at interval, statuses ...modelv1.DeploymentStatus) string {
	q := url.Values{}
	for name, values := range s.q {
		if name == "application" || strings.HasPrefix(name, "label:") {
			q[name] = values
		}
	}
	for name, values := range extra {
		q[name] = values
	}
	q.Set("since", instant(at.from))
	q.Set("until", instant(at.to))
	if len(statuses) > 0 {
		q["status"] = statusNames(statuses)
	}
	return withQuery("/deployments", q)
}

// divisions are links to the figures by day and by week.
func (d *deliveryView) divisions() []tab {
	return []tab{{label: "By day", path: d.with("bucket", "day"), current: d.daily}, {label: "By week", path: d.with("bucket", ""), current: !d.daily}}
}

// groupings are links to the groups of figures.
func (d *deliveryView) groupings() []tab {
	out := []tab{{label: "Applications", path: d.with("by", ""), current: d.by == ""}}
	for _, name := range d.labels {
		out = append(out, tab{label: name, path: d.with("by", name), current: d.by == name})
	}
	return out
}

// period is the title of the column of buckets.
func (d *deliveryView) period() string {
	if d.daily {
		return "Day"
	}
	return "Week"
}

// grouped is the title of the column of groups.
func (d *deliveryView) grouped() string { return cmp.Or(d.by, "Application") }
