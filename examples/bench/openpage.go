package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"html"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// openPage is a browser that has a view open: it loads the view with its assets, opens the
// streams that the view names as htmx does, and records when each state of an application
// arrives. It has connections and a session of its own.
type openPage struct {
	client    *http.Client
	base      string
	token     string // of the session
	path      string
	connected time.Time // from then on, streams report changes
	shown     *arrivals
	bytes     atomic.Int64 // of events
}

// ended is the place of a deployment's end, after those of its stages.
const ended = 100

// arrivals are the states that a view has shown.
type arrivals struct {
	reads *framesRead
	mu    sync.Mutex
	at    map[string]map[int]time.Time // by application or deployment, then by the place in the pipeline
}

func newArrivals(reads *framesRead) *arrivals {
	return &arrivals{reads: reads, at: map[string]map[int]time.Time{}}
}

// see records what an event shows at a time. A later place includes the earlier ones.
func (a *arrivals) see(frame string, at time.Time) {
	f := a.reads.read(frame)
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, place := range f.places {
		a.reached(id, place, at)
	}
	if !f.now {
		return
	}
	for id, seen := range a.at { // the view Now lists what is under way
		if _, listed := f.places[id]; !listed && len(seen) > 0 {
			a.reached(id, ended, at)
		}
	}
}

func (a *arrivals) reached(id string, place int, at time.Time) {
	if a.at[id] == nil {
		if place == ended {
			return // of an earlier deployment
		}
		a.at[id] = map[int]time.Time{}
	}
	for p := place; p > 0 && a.at[id][p].IsZero(); p-- {
		a.at[id][p] = at
	}
}

// framesRead remembers what events show: most browsers receive the same ones. It is safe for
// concurrent use.
type framesRead struct {
	seed maphash.Seed
	mu   sync.Mutex
	all  map[uint64]frameRead
}

// frameRead is what an event shows.
type frameRead struct {
	places map[string]int // by application, "" for the one of the view
	now    bool           // the event lists all that is under way
}

func newFramesRead() *framesRead {
	return &framesRead{seed: maphash.MakeSeed(), all: map[uint64]frameRead{}}
}

func (r *framesRead) read(frame string) frameRead {
	key := maphash.String(r.seed, frame)
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.all[key]
	if !ok {
		f = readFrame(frame)
		r.all[key] = f
	}
	return f
}

var (
	rowStart    = regexp.MustCompile(`<(?:li class="row"|tr) id="(?:now|app)-([\w-]+)"`)
	stageOf     = regexp.MustCompile(`(\d+) of \d+$`)
	firstWord   = regexp.MustCompile(`<span class="word">([^<]*)</span>`)
	streamPaths = regexp.MustCompile(`hx-sse:connect="([^"]+)"`)
	assetPaths  = regexp.MustCompile(`(?:href|src)="(/assets/[^"]+)"`)
)

// readFrame finds the rows of applications, or the summary, and which stage each of them shows.
func readFrame(frame string) frameRead {
	f := frameRead{places: map[string]int{}, now: strings.Contains(frame, `id="now"`) || strings.Contains(frame, `id="now-under-way"`)}
	rows := rowStart.FindAllStringSubmatchIndex(frame, -1)
	for i, row := range rows {
		end := len(frame)
		if i+1 < len(rows) {
			end = rows[i+1][0]
		}
		if place := placeOf(frame[row[0]:end]); place > 0 {
			f.places[frame[row[2]:row[3]]] = place
		}
	}
	if _, summary, ok := strings.Cut(frame, `<div id="summary"`); ok {
		if place := placeOf(summary); place > 0 {
			f.places[""] = place
		}
	}
	return f
}

// placeOf returns the place of the stage that a text shows first; 0 for none.
func placeOf(text string) int {
	if _, stages, ok := strings.Cut(text, `<ol class="pipeline"`); ok { // of a deployment
		words := firstWord.FindAllStringSubmatch(stages, -1)
		n := 0
		for n < len(words) && words[n][1] != "Not started" {
			n++
		}
		if strings.Contains(text, `>Succeeded</span>`) && firstWord.FindStringSubmatch(text)[1] == "Succeeded" {
			return ended
		}
		return n
	}
	if word := firstWord.FindStringSubmatch(text); word != nil {
		return placeOfWord(word[1])
	}
	return 0
}

// placeOfWord returns the place of the stage that the state of an application names; 0 for none.
func placeOfWord(word string) int {
	if found := stageOf.FindStringSubmatch(word); found != nil {
		place, _ := strconv.Atoi(found[1]) // digits
		return place
	}
	if word == "Synced" {
		return ended
	}
	return 0
}

// newOpenPage returns the browser of a session.
func newOpenPage(address, token string, reads *framesRead) *openPage {
	return &openPage{
		client: &http.Client{Transport: &http.Transport{MaxConnsPerHost: 6}}, // as browsers do
		base:   "http://" + address, token: token, shown: newArrivals(reads),
	}
}

// request returns a request with the cookie of the session.
func (p *openPage) request(ctx context.Context, path string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	if err == nil {
		r.AddCookie(&http.Cookie{Name: "piped-session", Value: p.token})
	}
	return r, err
}

// get returns the body of an answer.
func (p *openPage) get(ctx context.Context, path string) (string, error) {
	r, err := p.request(ctx, path)
	if err != nil {
		return "", err
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(body), err
}

// load loads a view and its assets, and returns its streams.
func (p *openPage) load(ctx context.Context, path string) (streams []string, err error) {
	p.path = path
	body, err := p.get(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, asset := range assetPaths.FindAllStringSubmatch(body, -1) {
		if _, err := p.get(ctx, asset[1]); err != nil {
			return nil, err
		}
	}
	for _, found := range streamPaths.FindAllStringSubmatch(body, -1) {
		streams = append(streams, html.UnescapeString(found[1]))
	}
	if len(streams) == 0 {
		return nil, fmt.Errorf("%s has no stream", path)
	}
	return streams, nil
}

// follow receives a stream until it ends or ctx does. connected is called once it is open.
func (p *openPage) follow(ctx context.Context, stream string, connected func()) error {
	r, err := p.request(ctx, stream)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/html, text/event-stream")
	r.Header.Set("HX-Request", "true")
	r.Header.Set("HX-Current-URL", p.base+p.path)
	r.Header.Set("Accept-Encoding", "gzip, deflate")
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("%s: %s", stream, resp.Status)
	}
	connected()
	lines, frame, closed := bufio.NewReaderSize(resp.Body, 64<<10), strings.Builder{}, false
	var received int64
	defer func() { p.bytes.Add(received) }()
	for {
		line, err := lines.ReadString('\n')
		if err != nil && (closed || ctx.Err() != nil) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s broke off: %w", stream, err)
		}
		received += int64(len(line))
		switch text, isData := strings.CutPrefix(line, "data: "); {
		case isData:
			frame.WriteString(text)
		case line == "event: end\n":
			closed = true
		case line == "\n" && frame.Len() > 0:
			p.shown.see(frame.String(), time.Now())
			frame.Reset()
		}
	}
}
