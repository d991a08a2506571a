package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
)

// page is the address of the agent's page.
func (d *demo) page() string { return "http://" + d.agent.WebAddress }

// signInLink returns an address of the page that signs a person in once.
func (d *demo) signInLink(ctx context.Context) (string, error) {
	args := append([]string{"login-link", "--web-address", d.page()}, d.agent.pipectlFlags()...)
	out, err := exec.CommandContext(ctx, filepath.Join(d.bin, "pipectl"), args...).Output()
	if err != nil {
		return "", fmt.Errorf("pipectl %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// openPage uses a sign-in link as a browser does, which works once, and prints another one.
func (d *demo) openPage(ctx context.Context) error {
	link, err := d.signInLink(ctx)
	if err != nil {
		return err
	}
	for use, want := range []string{"Now", "Sign-in failed"} {
		title, err := signInWith(ctx, link)
		if err != nil {
			return err
		}
		if title != want {
			d.differ("use %d of the sign-in link shows %q, not %q", use+1, title, want)
		}
	}
	return d.showPage(ctx)
}

// showPage prints where a person can look and act.
func (d *demo) showPage(ctx context.Context) error {
	link, err := d.signInLink(ctx)
	if err != nil {
		return err
	}
	d.out.fact("page", link)
	d.out.note("The link signs you in once, within ten minutes.")
	return nil
}

// signInWith opens a sign-in link with a new browser, presses the button, and returns the title
// of what is shown.
func signInWith(ctx context.Context, link string) (title string, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	form := url.Values{"ticket": {u.Query().Get("ticket")}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.Scheme+"://"+u.Host+u.Path, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := browser.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(body), "<title>")
	title, _, _ = strings.Cut(rest, "</title>")
	return strings.TrimSuffix(title, " – piped"), nil
}
