package app

import (
	"path/filepath"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/trace"
	"github.com/c785c783/piped/piped/web"
)

// addObservability adds the components for metrics and, where they are configured, traces
// and profiles.
func (a *App) addObservability(cfg *config.Piped, o Options, st *store.Store) error {
	a.parts.onClose("store metrics", a.metrics.collect(st, a.live, o.Now).Close)
	ended := a.metrics.ended.Count(st, a.metrics.log)
	a.parts.onClose("deployment metrics", ended.Close)
	a.parts.add("metrics", ended.Run)
	if !a.worker() { // a trace is sent once
		if err := a.addTracer(cfg, o, st); err != nil {
			return err
		}
	}
	if cfg.Debug.PprofAddress == "" {
		return nil
	}
	profiler, err := web.NewProfiler(cfg.Debug.PprofAddress, o.Logger.With("component", "profiler"))
	if err != nil {
		return err
	}
	a.parts.onClose("profiler", profiler.Close)
	a.parts.add("profiler", profiler.Run)
	return nil
}

// addTracer adds the component that sends traces, if a receiver is configured.
func (a *App) addTracer(cfg *config.Piped, o Options, st *store.Store) error {
	t := cfg.Telemetry
	if t.OTLPEndpoint == "" {
		return nil
	}
	headers := map[string]string{}
	for name, value := range t.Headers {
		headers[name] = value.Reveal()
	}
	tracer, err := trace.New(trace.Config{
		Endpoint: t.OTLPEndpoint, Insecure: t.Insecure, Headers: headers, SampleRatio: t.SampleRatio, File: filepath.Join(cfg.DataDir, "traces.json"),
		Store: st, Version: o.Version, PipedID: cfg.PipedID, Logger: o.Logger.With("component", "traces"), Now: o.Now,
	})
	if err != nil {
		return err
	}
	a.parts.onClose("traces", tracer.Close)
	a.parts.add("traces", tracer.Run)
	return nil
}
