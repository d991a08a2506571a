package script

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// searchPath is the PATH of scripts, regardless of the agent's own.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// markVariable names the workspace in the environment of every process of a run. It
// identifies those that were left by a launcher that was killed.
const markVariable = "PIPED_SCRIPT_DIR"

// scriptContext is the content of SR_CONTEXT_RAW, with PipeCD's names.
type scriptContext struct {
	DeploymentID        string            `json:"deploymentID,omitempty"`
	ApplicationID       string            `json:"applicationID,omitempty"`
	ApplicationName     string            `json:"applicationName,omitempty"`
	TriggeredAt         int64             `json:"triggeredAt,omitempty"`
	TriggeredCommitHash string            `json:"triggeredCommitHash,omitempty"`
	TriggeredCommander  string            `json:"triggeredCommander,omitempty"`
	RepositoryURL       string            `json:"repositoryURL,omitempty"`
	Summary             string            `json:"summary,omitempty"`
	Labels              map[string]string `json:"labels,omitempty"`
	IsRollback          bool              `json:"isRollback,omitempty"`
}

// environment returns the environment of a script: general variables, PipeCD's SR_
// variables, and those of the stage. Later ones take precedence, except for the mark.
func environment(ws workspace, d deploy.Deployment, j job) ([]string, error) {
	env := map[string]string{
		"PATH": searchPath, "LANG": "C.UTF-8", "HOME": ws.home, "TMPDIR": ws.tmp,
	}
	about, err := describe(d, j)
	if err != nil {
		return nil, err
	}
	maps.Copy(env, about)
	maps.Copy(env, j.env)
	env[markVariable] = ws.dir
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00") {
			return nil, deploy.Errorf(deploy.Invalid, "environment variable %q: expected a name without \"=\", and no NUL character in it or its value", name)
		}
		out = append(out, name+"="+env[name])
	}
	return out, nil
}

// describe returns the SR_ variables. The commit is the one whose files the script
// sees: a repeated script of the last success deploys that commit.
func describe(d deploy.Deployment, j job) (map[string]string, error) {
	c := scriptContext{
		DeploymentID: d.ID, ApplicationID: d.ApplicationID, ApplicationName: d.ApplicationName,
		TriggeredAt: d.Trigger.At.Unix(), TriggeredCommitHash: j.commit, TriggeredCommander: d.Trigger.Commander,
		RepositoryURL: withoutPassword(d.Git.Remote), Summary: d.Summary, Labels: d.Labels, IsRollback: j.rollback,
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode SR_CONTEXT_RAW: %w", err)
	}
	env := map[string]string{
		"SR_DEPLOYMENT_ID": c.DeploymentID, "SR_APPLICATION_ID": c.ApplicationID, "SR_APPLICATION_NAME": c.ApplicationName,
		"SR_TRIGGERED_AT":          strconv.FormatInt(c.TriggeredAt, 10),
		"SR_TRIGGERED_COMMIT_HASH": c.TriggeredCommitHash, "SR_TRIGGERED_COMMANDER": c.TriggeredCommander,
		"SR_REPOSITORY_URL": c.RepositoryURL, "SR_SUMMARY": c.Summary,
		"SR_IS_ROLLBACK": strconv.FormatBool(j.rollback), "SR_CONTEXT_RAW": string(raw),
	}
	for name, value := range d.Labels {
		env["SR_LABELS_"+strings.ToUpper(name)] = value
	}
	return env, nil
}

// withoutPassword removes the credentials from a remote's URL. The user of an SSH
// remote is part of the address and stays.
func withoutPassword(remote string) string {
	u, err := url.Parse(remote)
	if err != nil || u.User == nil {
		return remote
	}
	if u.User = url.User(u.User.Username()); u.Scheme != "ssh" {
		u.User = nil // a token may be in place of the user name
	}
	return u.String()
}
