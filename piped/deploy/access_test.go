package deploy_test

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

func TestSelectorMatches(t *testing.T) {
	t.Parallel()
	app := deploy.Application{Name: "web-front", Labels: map[string]string{"team": "a", "env": "prod"}, Git: deploy.GitPath{RepoID: "shop"}}
	for name, c := range map[string]struct {
		selector deploy.Selector
		want     bool
	}{
		"no condition":              {deploy.Selector{}, true},
		"label":                     {deploy.Selector{Labels: map[string]string{"team": "a"}}, true},
		"other value":               {deploy.Selector{Labels: map[string]string{"team": "b"}}, false},
		"absent label, empty value": {deploy.Selector{Labels: map[string]string{"tier": ""}}, false},
		"one label of two":          {deploy.Selector{Labels: map[string]string{"team": "a", "env": "dev"}}, false},
		"name":                      {deploy.Selector{Names: []string{"web-front"}}, true},
		"part of a name":            {deploy.Selector{Names: []string{"web"}}, false},
		"upper case":                {deploy.Selector{Names: []string{"WEB-*"}}, false},
		"prefix":                    {deploy.Selector{Names: []string{"api-*", "web-*"}}, true},
		"suffix":                    {deploy.Selector{Names: []string{"*-front"}}, true},
		"middle":                    {deploy.Selector{Names: []string{"w*b*front"}}, true},
		"parts overlap":             {deploy.Selector{Names: []string{"web-fr*front"}}, false},
		"any name":                  {deploy.Selector{Names: []string{"*"}}, true},
		"question mark is literal":  {deploy.Selector{Names: []string{"web?front"}}, false},
		"repository":                {deploy.Selector{Repositories: []string{"infra", "shop"}}, true},
		"other repository":          {deploy.Selector{Repositories: []string{"infra"}}, false},
		"name but not label":        {deploy.Selector{Names: []string{"web-*"}, Labels: map[string]string{"team": "b"}}, false},
	} {
		if got := c.selector.Matches(app); got != c.want {
			t.Errorf("%s: Matches = %v, want %v", name, got, c.want)
		}
	}
}

func TestScope(t *testing.T) {
	t.Parallel()
	teamA, prod := deploy.Selector{Labels: map[string]string{"team": "a"}}, deploy.Selector{Labels: map[string]string{"env": "prod"}}
	app := func(team, env string) deploy.Application {
		return deploy.Application{Labels: map[string]string{"team": team, "env": env}}
	}
	var none deploy.Scope
	both, either := none.With(teamA, prod), none.With(teamA).With(prod)
	for name, c := range map[string]struct {
		scope deploy.Scope
		app   deploy.Application
		want  bool
	}{
		"nothing is granted":     {none, app("a", "prod"), false},
		"all":                    {deploy.Everything(), app("a", "prod"), true},
		"no condition is all":    {none.With(deploy.Selector{}), app("b", "dev"), true},
		"both selectors":         {both, app("a", "prod"), true},
		"one of both":            {both, app("a", "dev"), false},
		"first alternative":      {either, app("a", "dev"), true},
		"second alternative":     {either, app("b", "prod"), true},
		"neither":                {either, app("b", "dev"), false},
		"empty beside selectors": {none.With(deploy.Selector{}, teamA), app("b", "prod"), false},
	} {
		if got := c.scope.Contains(c.app); got != c.want {
			t.Errorf("%s: Contains = %v, want %v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		wide, narrow deploy.Scope
		want         bool
	}{
		"all covers":              {deploy.Everything(), both, true},
		"nothing is covered":      {none, none, true},
		"all is not covered":      {either, deploy.Everything(), false},
		"narrower":                {none.With(teamA), both, true},
		"wider":                   {both, none.With(teamA), false},
		"one of the alternatives": {either, none.With(prod), true},
		"more than one of them":   {none.With(prod), either, false},
	} {
		if got := c.wide.Covers(c.narrow); got != c.want {
			t.Errorf("%s: Covers = %v, want %v", name, got, c.want)
		}
	}
}
