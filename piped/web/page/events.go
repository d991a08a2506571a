package page

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// eventsPage is how many events a page shows.
const eventsPage = 50

// eventsView is a page of the registered events.
type eventsView struct {
	steadyList[*modelv1.Event]
	denied bool // the caller may not list events
	strip  *strip
}

// eventStatuses are the statuses by which events are filtered, by their name in the address.
func eventStatuses() []struct {
	name   string
	status modelv1.EventStatus
} {
	return []struct {
		name   string
		status modelv1.EventStatus
	}{
		{"waiting", modelv1.EventStatus_EVENT_NOT_HANDLED}, {"done", modelv1.EventStatus_EVENT_SUCCESS},
		{"failed", modelv1.EventStatus_EVENT_FAILURE}, {"outdated", modelv1.EventStatus_EVENT_OUTDATED},
	}
}

// eventMark returns the mark of an event's status.
func eventMark(s modelv1.EventStatus) mark {
	switch s {
	case modelv1.EventStatus_EVENT_SUCCESS:
		return mark{icon: "check", word: "Written", role: roleOK}
	case modelv1.EventStatus_EVENT_FAILURE:
		return mark{icon: "cross", word: "Failed", role: roleBad}
	case modelv1.EventStatus_EVENT_OUTDATED:
		return mark{icon: "skip", word: "Outdated", role: roleMuted}
	}
	return mark{icon: "clock", word: "Waiting", role: roleActive}
}

// showEvents shows the registered events, and what can be traced.
func showEvents(v *visit) (*screen, error) {
	e, err := v.readEvents(v.query())
	if err != nil {
		return nil, err
	}
	return &screen{title: "Events", nav: "Events", body: eventsBody(v, e), live: e.live(), parts: e.parts(v), strip: e.strip}, nil
}

// readEvents reads the page of an address. If the address says which event was the newest one
// shown, newer ones are only counted.
func (v *visit) readEvents(q url.Values) (*eventsView, error) {
	e := &eventsView{steadyList: newSteadyList[*modelv1.Event](q, eventsPage), denied: !v.everywhere("view")}
	var err error
	if e.strip, err = v.readStrip(); err != nil || e.denied {
		return e, err
	}
	req := &controlv1.ListEventsRequest{Name: q.Get("name"), Limit: e.limit(), Cursor: q.Get("cursor")}
	for _, s := range eventStatuses() {
		if slices.Contains(q["status"], s.name) {
			req.Statuses = append(req.Statuses, s.status)
		}
	}
	if req.Labels, err = labelsOf(q.Get("labels")); err != nil {
		return nil, err
	}
	resp, err := v.control.ListEvents(v.ctx, req)
	if err != nil {
		return nil, err
	}
	e.set(resp.Events, resp.Cursor, (*modelv1.Event).GetId)
	return e, nil
}

// labelsOf returns the labels of a text such as `app=web, env=prod`.
func labelsOf(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range commaList(text) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, status.Errorf(codes.InvalidArgument, "labels: %q is not a label such as team=payments", pair)
		}
		labels[name] = value
	}
	return labels, nil
}

// labelText returns labels in one line, by name.
func labelText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ", ")
}

// eventsSource is the stream of the view.
type eventsSource struct {
	everyApplication
	q url.Values
}

func liveEvents(v *visit) (source, error) {
	q := v.query()
	q.Del("from")
	return eventsSource{q: q}, nil
}

func (s eventsSource) parts(v *visit) ([]part, error) {
	e, err := v.readEvents(s.q)
	if err != nil {
		return nil, err
	}
	return append(e.parts(v), e.strip.part()), nil
}

// live returns the address of the stream.
func (e *eventsView) live() string {
	return withQuery("/events/live", e.streamed((*modelv1.Event).GetId))
}

// parts returns the live parts, but the strip: rows change in place, and new ones are offered.
func (e *eventsView) parts(v *visit) []part {
	parts := []part{{"events-headline", keyOf(e.headline()), eventsHeadline(e)}}
	if e.denied {
		return parts
	}
	if e.whole() {
		return append(parts, part{"events", keyOf(e.next, keyOfAll(e.rows)), eventTable(v, e)})
	}
	parts = append(parts, part{"resort", keyOf(e.newer), newerEvents(e)})
	for _, event := range e.rows {
		parts = append(parts, part{rowID("event", event.Id), keyOf(event), eventRow(v, e, event)})
	}
	return parts
}

func (e *eventsView) filtered() bool {
	return e.q.Has("name") || e.q.Has("status") || e.q.Has("labels")
}

// headline is the first sentence of the view.
func (e *eventsView) headline() string {
	if e.denied {
		return "Follow a change to what became of it."
	}
	counts := map[modelv1.EventStatus]int{}
	for _, event := range e.rows {
		counts[event.Status]++
	}
	if len(e.rows) == 0 && (e.filtered() || e.newer > 0) {
		return "Events"
	}
	if len(e.rows) == 0 {
		return "No event is registered."
	}
	text := plural(len(e.rows), "event", "events")
	if e.more {
		text = "The last " + text
	}
	return fmt.Sprintf("%s: %d written into Git, %s, %d failed.", text, counts[modelv1.EventStatus_EVENT_SUCCESS],
		plural(counts[modelv1.EventStatus_EVENT_NOT_HANDLED], "waits", "wait"), counts[modelv1.EventStatus_EVENT_FAILURE])
}
