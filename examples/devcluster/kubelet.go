package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// logLines is how much each container is said to have written.
const logLines = 30

// kubelet answers what the API server asks a node. The only thing that can be
// had is a container's log, which is made up: it names the container and counts
// its lines.
func kubelet() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		text, err := madeUpLog(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		io.WriteString(w, text)
	})
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// madeUpLog is what a request for a log gets, by tailLines, limitBytes and
// previous, as a kubelet reads them.
func madeUpLog(r *http.Request) (string, error) {
	query := r.URL.Query()
	instance := "this instance"
	if query.Get("previous") == "true" {
		instance = "the instance before"
	}
	first := 1
	if tail := query.Get("tailLines"); tail != "" {
		n, err := strconv.Atoi(tail)
		if err != nil || n < 0 {
			return "", fmt.Errorf("tailLines is %q; give a number", tail)
		}
		first = max(1, logLines-n+1)
	}
	var text strings.Builder
	for n := first; n <= logLines; n++ {
		fmt.Fprintf(&text, "%s of pod %s, %s: line %d of %d\n", r.PathValue("container"), r.PathValue("pod"), instance, n, logLines)
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
