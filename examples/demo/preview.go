package main

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost/githosttest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// The application with previews, and its pull request.
const (
	previewed     = "preview"
	pullRequest   = 1
	pullBranch    = "next-version"
	previewName   = "preview-pr-1"
	previewLink   = "https://web-pr-1.preview.example.com"
	previewLabel  = "preview"
	repositoryOf  = "demo" // the owner of the repository at the Git host
	previewsBelow = "-pr-"
)

// hostText makes the agent preview the pull requests of a Git host on this machine.
const hostText = `  gitHosts: [{host: 127.0.0.1, type: GITHUB, apiURL: %q, token: %q, comments: true}]
  previews: {namespacePrefix: %q, interval: 1s, hosts: [preview.example.com]}
`

// previewNamespace is the namespace of the preview.
func (s stage) previewNamespace() string {
	return fmt.Sprintf("%s%s%d-apps", s.namespace, previewsBelow, pullRequest)
}

// hostRepository serves the repository, and an API for its pull requests, as a Git host does.
func (d *demo) hostRepository() (err error) {
	d.host = githosttest.StartGitHub()
	d.served, err = gittest.ServeHTTP(d.repo.Dir, gittest.HTTPOptions{Folder: repositoryOf})
	return err
}

// previewPullRequest opens a pull request, whose comment says when its preview works, and closes it.
func (d *demo) previewPullRequest(ctx context.Context) error {
	head, err := d.repo.proposeImage(previewed, d.stage.images.next, pullBranch)
	if err != nil {
		return err
	}
	d.setPullRequest("open", head)
	d.out.fact("pull request", fmt.Sprintf("#%d, branch %s, with the label %s", pullRequest, pullBranch, previewLabel))
	d.out.fact("image", d.stage.images.at(d.stage.images.next))
	d.out.gap()
	comment, err := d.awaitComment(ctx, "ready", "")
	if err != nil {
		return err
	}
	if !strings.Contains(comment, "<"+previewLink+">") {
		d.differ("the comment does not link to %s", previewLink)
	}
	if err := d.expectPreview(ctx); err != nil {
		return err
	}
	d.out.gap()
	d.setPullRequest("closed", head)
	d.out.fact("pull request", "closed")
	d.out.gap()
	if _, err := d.awaitComment(ctx, "removed", comment); err != nil {
		return err
	}
	return d.expectNoPreview(ctx)
}

// proposeImage commits another tag of an application's image on a branch of its own.
func (r *repository) proposeImage(app, tag, branch string) (head string, err error) {
	file := workload(app)
	text := strings.Replace(r.files[file], r.images.at(r.images.first), r.images.at(tag), 1)
	return r.CommitOn(branch, "Propose "+tag, func(to *gittest.Repo) error { return to.Write(map[string]string{file: text}) })
}

// setPullRequest sets the state of the pull request at the Git host.
func (d *demo) setPullRequest(state, head string) {
	d.host.SetPull(githosttest.PullRequest{
		Number: pullRequest, State: state, Labels: []githosttest.Label{{Name: previewLabel}},
		Head: githosttest.Ref{Ref: pullBranch, SHA: head}, Base: githosttest.Ref{Ref: gittest.Branch},
	})
}

// awaitComment waits until the comment of the pull request says that the preview is in a phase. It prints what
// happens meanwhile, and each text of the comment but the one that was shown.
func (d *demo) awaitComment(ctx context.Context, phase, shown string) (text string, err error) {
	err = d.agent.Await(ctx, "the comment to say "+phase, d.stage.timeout, func(ctx context.Context) (bool, error) {
		if _, err := d.watch.poll(ctx); err != nil {
			return false, err
		}
		if comments := d.host.Comments(pullRequest); len(comments) == 1 {
			text = comments[0].Body
		}
		if text != shown {
			shown = text
			d.showComment(text)
		}
		return strings.Contains(text, "### Preview: "+phase), nil
	})
	if n := len(d.host.Comments(pullRequest)); err == nil && n != 1 {
		d.differ("the pull request has %d comments", n)
	}
	return text, err
}

// showComment prints a comment without what is invisible.
func (d *demo) showComment(text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "<!--") && line != "|---|---|---|" {
			d.out.output(line)
		}
	}
}

// expectPreview checks that the pods of the preview run the image of the pull request, and that one
// deployment made it so.
func (d *demo) expectPreview(ctx context.Context) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	namespace, image := d.stage.previewNamespace(), d.stage.images.at(d.stage.images.next)
	if err := runsOnly(ctx, client, namespace, previewed, image); err != nil {
		d.differ("the preview: %s", err)
	} else {
		d.out.good("seen in the cluster: Deployment %s/%s and all its pods run %s", namespace, previewed, image)
	}
	all, err := d.watch.poll(ctx)
	for _, it := range all {
		if it.ApplicationName == previewName {
			d.expectDeployment(it)
		}
	}
	return err
}

// expectDeployment notes that the deployment of the preview is no surprise. Its commit is a merge that
// the agent makes.
func (d *demo) expectDeployment(it *modelv1.Deployment) {
	d.expected = append(d.expected, expectation{previewName, it.Trigger.Commit.Hash, onCommit})
	if it.Status != success {
		d.differ("the preview is announced as ready, and its deployment is %s", statusName(it.Status))
	}
}

// expectNoPreview checks that nothing of the preview is left.
func (d *demo) expectNoPreview(ctx context.Context) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	namespace := d.stage.previewNamespace()
	_, err = client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		d.out.good("seen in the cluster: namespace %s is gone, with all that was in it", namespace)
	case err != nil:
		return fmt.Errorf("read namespace %s: %w", namespace, err)
	default:
		d.differ("the comment says that the preview is removed, and namespace %s is there", namespace)
	}
	err = d.agent.Await(ctx, "the preview to be forgotten", waitTimeout, func(ctx context.Context) (bool, error) {
		resp, err := d.agent.Control.ListPreviews(ctx, &controlv1.ListPreviewsRequest{})
		return err == nil && len(resp.GetPreviews()) == 0, err
	})
	if err != nil {
		return err
	}
	return d.agent.pipectl(ctx, d.out, "preview", "list")
}
