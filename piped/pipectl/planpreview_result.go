package pipectl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previewResult is a plan preview in the file format of PipeCD's pipectl, which other
// tools read.
type previewResult struct {
	Applications        []previewedApplication
	FailureApplications []failedApplication
	FailurePipeds       []failedPiped
}

type applicationInfo struct {
	ApplicationID        string
	ApplicationName      string
	ApplicationURL       string
	ApplicationKind      string
	ApplicationDirectory string
	Env                  string
	PlannedPluginNames   []string
	AllPluginNames       []string
}

type previewedApplication struct {
	applicationInfo
	SyncStrategy      string
	PlanSummary       string
	PlanDetails       string
	NoChange          bool
	PluginPlanResults []pluginResult
}

type failedApplication struct {
	applicationInfo
	Reason            string
	PlanDetails       string
	PluginPlanResults []pluginResult
}

type failedPiped struct {
	PipedID   string
	PipedName string
	PipedURL  string
	Reason    string
}

type pluginResult struct {
	PluginName   string `json:"plugin_name"`
	DeployTarget string `json:"deploy_target"`
	PlanSummary  []byte `json:"plan_summary"`
	PlanDetails  []byte `json:"plan_details"`
	DiffLanguage string `json:"diff_language"`
}

// readable sorts results by agent, then by the given labels, then by application name.
func readable(results []*modelv1.PlanPreviewCommandResult, sortKeys []string) *previewResult {
	out := &previewResult{}
	results = slices.SortedStableFunc(slices.Values(results), func(a, b *modelv1.PlanPreviewCommandResult) int {
		return cmp.Compare(a.GetPipedId(), b.GetPipedId())
	})
	for _, r := range results {
		if r.GetError() != "" {
			out.FailurePipeds = append(out.FailurePipeds, failedPiped{PipedID: r.GetPipedId(), PipedName: r.GetPipedName(), PipedURL: r.GetPipedUrl(), Reason: r.GetError()})
			continue
		}
		for _, a := range slices.SortedStableFunc(slices.Values(r.GetResults()), byLabels(sortKeys)) {
			out.add(a)
		}
	}
	return out
}

// byLabels returns a comparison by the values of the labels, in the order of keys, then
// by application name.
func byLabels(keys []string) func(a, b *modelv1.ApplicationPlanPreviewResult) int {
	return func(a, b *modelv1.ApplicationPlanPreviewResult) int {
		for _, k := range keys {
			if c := cmp.Compare(a.GetLabels()[k], b.GetLabels()[k]); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.GetApplicationName(), b.GetApplicationName())
	}
}

// add adds the result of an application, to the failures if it has an error.
func (r *previewResult) add(a *modelv1.ApplicationPlanPreviewResult) {
	info := applicationInfo{
		ApplicationID: a.GetApplicationId(), ApplicationName: a.GetApplicationName(), ApplicationURL: a.GetApplicationUrl(),
		ApplicationKind: a.GetApplicationKind().String(), ApplicationDirectory: a.GetApplicationDirectory(), Env: a.GetLabels()["env"],
		AllPluginNames: a.GetPluginNames(),
	}
	var plugins []pluginResult
	for _, p := range a.GetPluginPlanResults() {
		if !slices.Contains(info.PlannedPluginNames, p.GetPluginName()) {
			info.PlannedPluginNames = append(info.PlannedPluginNames, p.GetPluginName())
		}
		plugins = append(plugins, pluginResult{
			PluginName: p.GetPluginName(), DeployTarget: p.GetDeployTarget(), PlanSummary: p.GetPlanSummary(),
			PlanDetails: p.GetPlanDetails(), DiffLanguage: p.GetDiffLanguage(),
		})
	}
	if a.GetError() != "" {
		r.FailureApplications = append(r.FailureApplications, failedApplication{
			applicationInfo: info, Reason: a.GetError(), PlanDetails: string(a.GetPlanDetails()), PluginPlanResults: plugins,
		})
		return
	}
	r.Applications = append(r.Applications, previewedApplication{
		applicationInfo: info, SyncStrategy: a.GetSyncStrategy().String(), PlanSummary: string(a.GetPlanSummary()),
		PlanDetails: string(a.GetPlanDetails()), NoChange: a.GetNoChange(), PluginPlanResults: plugins,
	})
}

// text formats the result like PipeCD's pipectl.
func (r *previewResult) text() string {
	var b strings.Builder
	if len(r.Applications)+len(r.FailureApplications)+len(r.FailurePipeds) == 0 {
		return "\nThere are no updated applications. It means no deployment will be triggered once this pull request got merged.\n"
	}
	if n := len(r.Applications); n > 0 {
		fmt.Fprintf(&b, "\nHere are plan-preview for %s:\n", count(n, "application"))
	}
	for i, a := range r.Applications {
		a.write(&b, i+1)
	}
	if n := len(r.FailureApplications); n > 0 {
		fmt.Fprintf(&b, "\nNOTE: An error occurred while building plan-preview for the following %s:\n", several(n, "application"))
	}
	for i, a := range r.FailureApplications {
		fmt.Fprintf(&b, "\n%d. %s\n  reason: %s\n", i+1, a.title(), cleanLines(a.Reason))
		if a.PlanDetails != "" {
			fmt.Fprintf(&b, "  details:\n\n%s", details(a.PlanDetails))
		}
	}
	if n := len(r.FailurePipeds); n > 0 {
		fmt.Fprintf(&b, "\nNOTE: An error occurred while building plan-preview for applications of the following %s:\n", several(n, "Piped"))
	}
	for i, p := range r.FailurePipeds {
		fmt.Fprintf(&b, "\n%d. piped: %s\n  reason: %s\n", i+1, p.title(), cleanLines(p.Reason))
	}
	return b.String()
}

func (a *previewedApplication) write(b *strings.Builder, number int) {
	fmt.Fprintf(b, "\n%d. %s\n  sync strategy: %s\n", number, a.title(), a.SyncStrategy)
	if len(a.AllPluginNames) == 0 {
		fmt.Fprintf(b, "  summary: %s\n  details:\n\n%s", cleanLines(a.PlanSummary), details(a.PlanDetails))
		return
	}
	fmt.Fprintf(b, "  plugin(s): %s\n  summary:\n", strings.Join(a.AllPluginNames, ", "))
	for _, p := range a.PluginPlanResults {
		fmt.Fprintf(b, "  - %s(%s): %s\n", p.PluginName, p.DeployTarget, cleanLines(string(p.PlanSummary)))
	}
	b.WriteString("  details:\n\n")
	for _, p := range a.PluginPlanResults {
		fmt.Fprintf(b, "  - %s(%s):\n%s\n", p.PluginName, p.DeployTarget, details(string(p.PlanDetails)))
	}
}

func details(text string) string {
	return fmt.Sprintf("  ---DETAILS_BEGIN---\n%s\n  ---DETAILS_END---\n", cleanLines(text))
}

// title returns the line that introduces an application in the text output.
func (a *applicationInfo) title() string {
	title := "app: " + clean(a.ApplicationName)
	if a.Env != "" {
		title += ", env: " + clean(a.Env)
	}
	if len(a.AllPluginNames) > 0 {
		return title + ", plan plugin(s): " + strings.Join(a.PlannedPluginNames, ", ")
	}
	return title + ", kind: " + a.ApplicationKind
}

// title returns the agent's name and ID, or only the ID if it has no name.
func (p *failedPiped) title() string {
	if p.PipedName == "" {
		return p.PipedID
	}
	return fmt.Sprintf("%s (%s)", clean(p.PipedName), p.PipedID)
}

// several formats a noun, with its number if above one.
func several(n int, thing string) string {
	if n == 1 {
		return thing
	}
	return count(n, thing)
}
