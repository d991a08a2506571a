package sandbox

import (
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
)

// restrict confines this process and its children to the files of a command and to
// system programs, and limits signals to each other. It requires Linux 6.12: without
// signal scoping a script could end its supervisor and the agent.
func restrict(c Command) error {
	rules := []landlock.Rule{
		landlock.RODirs(append(systemDirs[:len(systemDirs):len(systemDirs)], "/proc")...).IgnoreIfMissing(),
		landlock.RWFiles(devices...).IgnoreIfMissing(),
		landlock.RWDirs(c.Own).WithRefer(),
	}
	for _, path := range systemFiles {
		rules = append(rules, ruleOf(path, landlock.RODirs, landlock.ROFiles).IgnoreIfMissing())
	}
	for _, path := range c.Allow {
		rules = append(rules, ruleOf(path, func(p ...string) landlock.FSRule { return landlock.RWDirs(p...).WithRefer() }, landlock.RWFiles))
	}
	if err := landlock.V6.RestrictPaths(rules...); err != nil {
		return fmt.Errorf("restrict the files it can open: %w", err)
	}
	if err := landlock.V6.RestrictScoped(); err != nil {
		return fmt.Errorf("restrict the processes it can signal: %w", err)
	}
	return nil
}

// ruleOf returns the rule for a path, which is a directory or a file.
func ruleOf(path string, dir, file func(...string) landlock.FSRule) landlock.FSRule {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return dir(path)
	}
	return file(path)
}
