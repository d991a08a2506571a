package page

import (
	"maps"
	"net/url"
	"slices"
)

// nothingSeen stands in the address of a stream for a list that was shown empty.
const nothingSeen = "-"

// steadyList is a page of a list, the newest row first. Its rows stay where they are while one
// looks at them; newer ones are counted.
type steadyList[R any] struct {
	q     url.Values // of the address of the view
	seen  string     // ID of the first row that was shown; "" before the list is shown
	page  int        // how many rows are shown
	rows  []R
	newer int    // rows that were added since the list was shown
	next  string // cursor of the rows after these
	more  bool   // older ones are not shown
}

func newSteadyList[R any](q url.Values, page int) steadyList[R] {
	l := steadyList[R]{q: maps.Clone(q), seen: q.Get("seen"), page: page}
	l.q.Del("seen")
	return l
}

// whole reports whether the list changes as a whole: where nothing was shown, nothing can move,
// and from a list of one state rows go.
func (l *steadyList[R]) whole() bool {
	return l.q.Has("status") || l.seen == nothingSeen || l.seen == "" && len(l.rows) == 0
}

// stays reports whether rows that were shown have to stay.
func (l *steadyList[R]) stays() bool { return l.seen != "" && !l.whole() }

// limit returns how many rows have to be read, so that those that were shown are among them.
func (l *steadyList[R]) limit() int32 {
	if l.stays() {
		return int32(4 * l.page)
	}
	return int32(l.page)
}

// set takes the rows that were read, and leaves those that were shown. If the first of them is not
// among those that were read, none of them is known to be there.
func (l *steadyList[R]) set(rows []R, cursor string, id func(R) string) {
	l.rows, l.next, l.more = rows, cursor, cursor != ""
	if !l.stays() {
		return
	}
	l.newer = slices.IndexFunc(rows, func(r R) bool { return id(r) == l.seen })
	if l.newer < 0 {
		l.newer = len(rows)
	}
	l.rows = rows[l.newer:]
	if len(l.rows) > l.page {
		l.rows, l.more = l.rows[:l.page], true
	}
}

// streamed returns the query of the stream of the list.
func (l *steadyList[R]) streamed(id func(R) string) url.Values {
	q := maps.Clone(l.q)
	q.Set("seen", nothingSeen)
	if len(l.rows) > 0 {
		q.Set("seen", id(l.rows[0]))
	}
	return q
}
