package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What each container is said to have written.
const (
	logLines      = 30
	followedLines = 10 // written while its log is followed; then the log ends
	followedPause = 100 * time.Millisecond
)

// kubelet answers what the API server asks a node. The only thing that can be
// had is a container's log, which is made up: it names the container and counts
// its lines.
func kubelet() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthy)
	started := time.Now()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		text, err := madeUpLog(r, started)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		io.WriteString(w, text)
		if r.URL.Query().Get("follow") == "true" {
			followLog(w, r)
		}
	})
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// madeUpLog is what a request for a log gets, by tailLines, limitBytes,
// previous, sinceTime and timestamps, as a kubelet reads them. One line was
// written in each second before the kubelet started.
func madeUpLog(r *http.Request, started time.Time) (string, error) {
	query := r.URL.Query()
	first := 1
	if tail := query.Get("tailLines"); tail != "" {
		n, err := strconv.Atoi(tail)
		if err != nil || n < 0 {
			return "", fmt.Errorf("tailLines is %q; give a number", tail)
		}
		first = max(1, logLines-n+1)
	}
	var since time.Time
	if text := query.Get("sinceTime"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return "", fmt.Errorf("sinceTime is %q; give a time", text)
		}
	}
	var text strings.Builder
	for n := first; n <= logLines; n++ {
		if at := started.Add(time.Duration(n-logLines) * time.Second); !at.Before(since) {
			text.WriteString(logLine(r, at, n))
		}
	}
	if limit := query.Get("limitBytes"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 {
			return "", fmt.Errorf("limitBytes is %q; give a number above 0", limit)
		}
		return text.String()[:min(n, text.Len())], nil
	}
	return text.String(), nil
}

// logLine is the nth line of a container.
func logLine(r *http.Request, at time.Time, n int) string {
	instance, stamp := "this instance", ""
	if r.URL.Query().Get("previous") == "true" {
		instance = "the instance before"
	}
	if r.URL.Query().Get("timestamps") == "true" {
		stamp = at.UTC().Format(time.RFC3339Nano) + " "
	}
	return fmt.Sprintf("%s%s of pod %s, %s: line %d of %d\n", stamp, r.PathValue("container"), r.PathValue("pod"), instance, n, logLines)
}

// followLog writes the lines of a log that is followed, until the client leaves.
func followLog(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	for n := 1; n <= followedLines; n++ {
		if flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(followedPause):
		}
		io.WriteString(w, logLine(r, time.Now(), logLines+n))
	}
}
