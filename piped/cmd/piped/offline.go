package main

import (
	"context"
	"errors"
	"io/fs"
	"net/http"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// errOffline is the cause of errors for everything that requires a server: piped check
// works offline.
var errOffline = errors.New("not checked, which needs the network")

// offline replaces every server.
type offline struct{}

// At implements kustomize.Remotes and helm.Trees.
func (offline) At(context.Context, string, string) (fs.FS, string, error) {
	return nil, "", deploy.Errorf(deploy.Unavailable, "%w", errOffline)
}

// File implements kustomize.Remotes.
func (offline) File(context.Context, string, int64) ([]byte, error) {
	return nil, deploy.Errorf(deploy.Unavailable, "%w", errOffline)
}

// RoundTrip implements http.RoundTripper.
func (offline) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOffline }

// offlineCharts renders charts of the application's own repository.
type offlineCharts struct{ *helm.Renderer }

func newOfflineCharts() (offlineCharts, error) {
	charts, err := helm.New(helm.Config{Git: offline{}, Transport: offline{}})
	return offlineCharts{charts}, err
}

// Render implements source.Charts. It skips charts from other repositories, whose
// location only the agent's configuration contains.
func (c offlineCharts) Render(ctx context.Context, req helm.Request) (helm.Result, error) {
	if req.Chart.Repository != "" {
		return helm.Result{}, deploy.Errorf(deploy.Unavailable, "chart %s of %s: %w", req.Chart.Name, req.Chart.Repository, errOffline)
	}
	return c.Renderer.Render(ctx, req)
}
