package opentofu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
)

// stopGrace is how long a command that was interrupted may take to end: it writes the state and
// releases its lock.
const stopGrace = 5 * time.Minute

// planFile is the name of a saved plan in the directory of a run.
const planFile = "plan.bin"

// Config describes one run.
type Config struct {
	Program  Program
	Provider *opentofu.Provider
	Input    opentofu.Input
	Root     string            // directory with the files of the commit
	Dir      string            // of the application, slash-separated from Root
	Own      string            // directory of the run besides Root: its home, its temporary files, and the plan
	Env      map[string]string // further variables that every command gets
	Log      io.Writer         // output of the commands; nil discards it
}

// Run runs commands in the directory of an application. It is for one goroutine.
type Run struct {
	Config
	flags opentofu.FlagSet
	tf    *tfexec.Terraform
	env   map[string]string // of every command
}

// Open checks the variable files and prepares the commands.
func Open(c Config) (*Run, error) {
	for _, file := range c.Input.VarFiles {
		at := path.Join(c.Dir, file)
		if !filepath.IsLocal(at) {
			return nil, deploy.Errorf(deploy.Invalid, "input.varFiles: %s is not in the repository", file)
		}
		if _, err := os.Stat(filepath.Join(c.Root, at)); err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "input.varFiles: there is no file %s in the commit", at)
		}
	}
	if err := os.MkdirAll(c.Own, 0o700); err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "prepare a run of %s: %w", c.Program.Path, err)
	}
	if err := sharePlugins(c.Provider.PluginCacheDir, c.Own); err != nil {
		return nil, err
	}
	tf, err := tfexec.NewTerraform(filepath.Join(c.Root, filepath.FromSlash(c.Dir)), c.Program.Path)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "prepare a run of %s: %w", c.Program.Path, err)
	}
	if err := tf.SetWaitDelay(stopGrace); err != nil {
		return nil, err
	}
	r := &Run{Config: c, flags: c.Input.CommandFlags.Flags(), tf: tf}
	r.env = r.environment()
	return r, nil
}

// sharePlugins lets a run find the plugins of a directory, "" for none, which it only reads: in the
// home directory of a run it is a mirror that the program finds by itself. The program links what
// it uses of it, and downloads what is not in it for the run alone.
func sharePlugins(dir, home string) error {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return deploy.Errorf(deploy.Unavailable, "pluginCacheDir: there is no directory %s; fill it with `tofu providers mirror`", dir)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(filepath.Join(home, ".terraform.d"), 0o700)
	}
	if err == nil {
		err = os.Symlink(dir, filepath.Join(home, ".terraform.d", "plugins"))
	}
	if err != nil {
		return deploy.Errorf(deploy.Unavailable, "share the plugins of %s: %w", dir, err)
	}
	return nil
}

// environment returns the variables of every command.
func (r *Run) environment() map[string]string {
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": r.Own, "TMPDIR": r.Own, "CHECKPOINT_DISABLE": "1", "NO_COLOR": "1",
	}
	for _, name := range r.Provider.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	if file := r.Provider.CLIConfigFile; file != "" {
		env["TF_CLI_CONFIG_FILE"] = file
	}
	return env
}

// prepare sets the environment and the output of the next command. It returns the variables of
// the configuration (TF_VAR_...) as assignments.
func (r *Run) prepare(own []string, log io.Writer) (vars []string, err error) {
	env := map[string]string{}
	for name, value := range r.env {
		env[name] = value
	}
	for _, list := range [][]string{r.Input.CommandEnvs.Shared, own} {
		for _, assignment := range list {
			name, value, _ := strings.Cut(assignment, "=")
			if variable, ok := strings.CutPrefix(name, "TF_VAR_"); ok {
				vars = append(vars, variable+"="+value)
			} else {
				env[name] = value
			}
		}
	}
	for name, value := range r.Env {
		env[name] = value
	}
	if log == nil {
		log = io.Discard
	}
	r.tf.SetStdout(log)
	r.tf.SetStderr(log)
	return vars, r.tf.SetEnv(env)
}

// Init downloads modules and plugins, opens the state, which must not be in the directory of the run,
// and selects the workspace.
func (r *Run) Init(ctx context.Context) error {
	if _, err := r.prepare(nil, nil); err != nil {
		return err
	}
	if _, _, err := r.tf.Version(ctx, false); err != nil { // read now, so that it is not in the log
		return r.fail(ctx, "version", err)
	}
	if _, err := r.prepare(r.Input.CommandEnvs.Init, r.Log); err != nil {
		return err
	}
	if err := r.tf.Init(ctx, initOptions(r.flags.Init)...); err != nil {
		return r.fail(ctx, "init", err)
	}
	if err := r.checkState(); err != nil {
		return err
	}
	workspace := r.Input.Workspace
	if workspace == "" || workspace == "default" {
		return nil
	}
	r.quiet()
	all, _, err := r.tf.WorkspaceList(ctx)
	if err != nil {
		return r.fail(ctx, "workspace list", err)
	}
	for _, there := range all {
		if there == workspace {
			return r.fail(ctx, "workspace select", r.tf.WorkspaceSelect(ctx, workspace))
		}
	}
	return r.fail(ctx, "workspace new", r.tf.WorkspaceNew(ctx, workspace))
}

// checkState fails if the state is a file in the directory of the run: it would be lost with it.
func (r *Run) checkState() error {
	at := filepath.Join(r.Root, filepath.FromSlash(r.Dir), ".terraform", "terraform.tfstate")
	var chosen struct {
		Backend struct {
			Type   string
			Config struct {
				Path         string
				WorkspaceDir string `json:"workspace_dir"`
			}
		}
	}
	data, err := os.ReadFile(at) // there is none without a backend
	if err == nil {
		err = json.Unmarshal(data, &chosen)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return deploy.Errorf(deploy.Unavailable, "read which backend has the state: %w", err)
	}
	b, key := chosen.Backend, "path"
	file := b.Config.Path
	if r.Input.Workspace != "" && r.Input.Workspace != "default" {
		file, key = b.Config.WorkspaceDir, "workspace_dir"
	}
	if b.Type != "" && b.Type != "local" || filepath.IsAbs(file) {
		return nil
	}
	return deploy.Errorf(deploy.Invalid, "the state would be lost with the directory of the run: use a remote backend, or set %s of the backend \"local\" to an absolute path", key)
}

// quiet discards the output of the next command, which is for programs.
func (r *Run) quiet() {
	r.tf.SetStdout(io.Discard)
	r.tf.SetStderr(io.Discard)
}

// Plan makes a plan and saves it in the directory of the run.
func (r *Run) Plan(ctx context.Context) (Plan, error) {
	return r.plan(ctx, r.Log)
}

// Refresh makes a plan of how the resources differ from the state, without a lock of the state and
// without a word in the log.
func (r *Run) Refresh(ctx context.Context) (Plan, error) {
	flags := r.flags.Plan
	defer func() { r.flags.Plan = flags }()
	r.flags.Plan = slices.DeleteFunc(slices.Clone(flags), func(f opentofu.Flag) bool { // which have no meaning for it
		return f.Name == "-refresh" || f.Name == "-replace" || f.Name == "-target"
	})
	return r.plan(ctx, nil, tfexec.RefreshOnly(true), tfexec.Lock(false))
}

// Replaces reports whether the flags ask for replacements, which every plan makes again.
func (r *Run) Replaces() bool {
	return slices.ContainsFunc(r.flags.Plan, func(f opentofu.Flag) bool { return f.Name == "-replace" })
}

// Preview makes a plan without a lock of the state, of which nothing is written to the log.
func (r *Run) Preview(ctx context.Context) (Plan, error) {
	return r.plan(ctx, nil, tfexec.Lock(false))
}

func (r *Run) plan(ctx context.Context, log io.Writer, more ...tfexec.PlanOption) (Plan, error) {
	vars, err := r.prepare(r.Input.CommandEnvs.Plan, log)
	if err != nil {
		return Plan{}, err
	}
	options := []tfexec.PlanOption{tfexec.Out(r.PlanPath())}
	for _, list := range [][]string{vars, r.Provider.Vars, r.Input.Vars} {
		for _, v := range list {
			options = append(options, tfexec.Var(v))
		}
	}
	for _, file := range r.Input.VarFiles {
		options = append(options, tfexec.VarFile(filepath.Join(r.Root, filepath.FromSlash(path.Join(r.Dir, file)))))
	}
	options = append(append(options, planOptions(r.flags.Plan)...), more...)
	changes, err := r.tf.Plan(ctx, options...)
	if err != nil {
		return Plan{}, r.fail(ctx, "plan", err)
	}
	p, err := r.Saved(ctx)
	p.IsEmpty = err == nil && !changes
	return p, err
}

// PlanPath is the file of the plan that Plan has saved, or that a caller has put there for Apply.
func (r *Run) PlanPath() string { return filepath.Join(r.Own, planFile) }

// Saved reads the saved plan.
func (r *Run) Saved(ctx context.Context) (Plan, error) {
	data, err := os.ReadFile(r.PlanPath())
	if err != nil {
		return Plan{}, deploy.Errorf(deploy.Unavailable, "read the plan: %w", err)
	}
	r.quiet()
	shown, err := r.tf.ShowPlanFile(ctx, r.PlanPath())
	if err != nil {
		return Plan{}, r.fail(ctx, "show the plan", err)
	}
	return planOf(data, shown), nil
}

// Apply applies the saved plan. When ctx ends, the program is interrupted and ends as it wants to.
func (r *Run) Apply(ctx context.Context) error {
	if _, err := r.prepare(r.Input.CommandEnvs.Apply, r.Log); err != nil {
		return err
	}
	options := append([]tfexec.ApplyOption{tfexec.DirOrPlan(r.PlanPath())}, applyOptions(r.flags.Apply)...)
	err := r.tf.Apply(ctx, options...)
	if err != nil && ctx.Err() == nil && keepsLock(err.Error()) {
		fmt.Fprintln(r.Log, "The plan was applied, but the lock of the state could not be released")
		return nil
	}
	return r.fail(ctx, "apply", err)
}

// State reads the state.
func (r *Run) State(ctx context.Context) (State, error) {
	r.quiet()
	shown, err := r.tf.Show(ctx)
	if err != nil {
		return State{}, r.fail(ctx, "show the state", err)
	}
	return stateOf(shown), nil
}

// ReleaseLock releases the lock of the state with the given ID, also one that another run holds.
func (r *Run) ReleaseLock(ctx context.Context, id string) error {
	r.quiet()
	return r.fail(ctx, "force-unlock", r.tf.ForceUnlock(ctx, id))
}

// fail returns the error of a command: a *Locked, one that says that the plan is stale, or what
// the program wrote.
func (r *Run) fail(ctx context.Context, command string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s was interrupted: %w", command, context.Cause(ctx))
	}
	text := err.Error()
	if lock := lockIn(text); lock != nil {
		return lock
	}
	if strings.Contains(text, "Saved plan is stale") {
		return ErrStale
	}
	return fmt.Errorf("%s %s: %s", filepath.Base(r.Program.Path), command, condense(text))
}

// ErrStale is the error of an apply of a plan whose state has changed since.
var ErrStale = errors.New("the saved plan does not fit the state any more, which has changed since it was made")

// condense returns what a program wrote about a failure without its frames and empty lines.
func condense(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "│╷╵─"))
		if line != "" && !strings.HasPrefix(line, "exit status") {
			lines = append(lines, line)
		}
	}
	const most = 12
	if len(lines) > most {
		lines = append(lines[:most], "…")
	}
	return strings.Join(lines, " ")
}
