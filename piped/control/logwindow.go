package control

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/ansi"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of GetStageLog and SearchStageLog.
const (
	windowBlocks = 500     // default of a window; maxItems is the most
	windowBytes  = 1 << 20 // of the text of a window
	windowPage   = 128     // blocks read at once

	logMatches     = 100 // default of a search; maxItems is the most
	maxFindText    = 200 // characters
	searchedPage   = 256 // blocks read at once
	searchedBlocks = 100_000
	searchedBytes  = 16 << 20
	excerptBefore  = 100 // characters before the text that was found
	excerpt        = 500 // characters
)

func validGetStageLog(r *controlv1.GetStageLogRequest) error {
	errs := []error{
		required("GetStageLogRequest.DeploymentId", r.DeploymentId),
		required("GetStageLogRequest.StageId", r.StageId),
		notNegative("GetStageLogRequest.BeforeIndex", r.GetBeforeIndex()),
		validAfterIndex("GetStageLogRequest.AfterIndex", r.GetAfterIndex()),
		notNegative("GetStageLogRequest.Limit", r.Limit),
	}
	if r.BeforeIndex != nil && r.AfterIndex != nil {
		errs = append(errs, broken("GetStageLogRequest.AfterIndex", "value must not be set together with BeforeIndex"))
	}
	return first(errs...)
}

func validSearchStageLog(r *controlv1.SearchStageLogRequest) error {
	errs := []error{
		required("SearchStageLogRequest.DeploymentId", r.DeploymentId),
		required("SearchStageLogRequest.StageId", r.StageId),
		required("SearchStageLogRequest.Text", r.Text),
		validAfterIndex("SearchStageLogRequest.AfterIndex", r.GetAfterIndex()),
		notNegative("SearchStageLogRequest.Limit", r.Limit),
	}
	if utf8.RuneCountInString(r.Text) > maxFindText {
		errs = append(errs, broken("SearchStageLogRequest.Text", "value length must be at most 200 runes"))
	}
	return first(errs...)
}

// validAfterIndex accepts -1, which is before the first block.
func validAfterIndex(field string, index int64) error {
	if index >= -1 {
		return nil
	}
	return broken(field, "value must be greater than or equal to -1")
}

// stageOf returns a stage of a deployment.
func (s *controlService) stageOf(ctx context.Context, deploymentID, stageID string) (deploy.Deployment, *deploy.Stage, error) {
	d, err := s.store.Deployment(ctx, deploymentID)
	if err != nil {
		return d, nil, err
	}
	stage := d.Stage(stageID)
	if stage == nil {
		return d, nil, noStage(d, stageID)
	}
	return d, stage, nil
}

// GetStageLog returns a window of a stage's log.
func (s *controlService) GetStageLog(ctx context.Context, req *controlv1.GetStageLogRequest) (*controlv1.GetStageLogResponse, error) {
	// The stage is read before its log: if it has ended by then, all of its log is stored.
	d, stage, err := s.stageOf(ctx, req.DeploymentId, req.StageId)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.GetStageLogResponse{StageId: text(stage.ID), Completed: stage.Status.Completed() || d.Status.Completed()}
	r := logReader{s.store, d.ID, stage.ID, min(int(cmp.Or(req.Limit, windowBlocks)), maxItems)}
	var blocks []deploy.LogBlock
	if req.AfterIndex != nil {
		blocks, resp.Earlier, resp.Later, err = r.after(ctx, *req.AfterIndex)
	} else {
		before := int64(math.MaxInt64)
		if req.BeforeIndex != nil {
			before = *req.BeforeIndex
		}
		blocks, resp.Earlier, resp.Later, err = r.before(ctx, before)
	}
	for _, b := range blocks {
		resp.Blocks = append(resp.Blocks, logBlock(b))
	}
	return resp, err
}

// logReader reads windows of a log of at most limit blocks.
type logReader struct {
	store               Store
	deployment, stageID string
	limit               int
}

// after returns the oldest blocks after an index, and whether there are others on either side.
func (r logReader) after(ctx context.Context, index int64) (blocks []deploy.LogBlock, earlier, later bool, err error) {
	blocks, later, err = r.window(index, func(from int64, n int) ([]deploy.LogBlock, error) {
		return r.store.StageLogAfter(ctx, r.deployment, r.stageID, from, n)
	})
	if err == nil && index >= 0 {
		var others []deploy.LogBlock
		others, err = r.store.StageLogBefore(ctx, r.deployment, r.stageID, index+1, 1)
		earlier = len(others) > 0
	}
	return blocks, earlier, later, err
}

// before returns the newest blocks before an index, and whether there are others on either side.
func (r logReader) before(ctx context.Context, index int64) (blocks []deploy.LogBlock, earlier, later bool, err error) {
	blocks, earlier, err = r.window(index, func(from int64, n int) ([]deploy.LogBlock, error) {
		page, err := r.store.StageLogBefore(ctx, r.deployment, r.stageID, from, n)
		slices.Reverse(page)
		return page, err
	})
	slices.Reverse(blocks)
	if err == nil && index < math.MaxInt64 {
		var others []deploy.LogBlock
		others, err = r.store.StageLogAfter(ctx, r.deployment, r.stageID, index-1, 1)
		later = len(others) > 0
	}
	return blocks, earlier, later, err
}

// window reads blocks in one direction until they are enough. more means that others follow in
// that direction.
func (r logReader) window(index int64, next func(from int64, n int) ([]deploy.LogBlock, error)) (blocks []deploy.LogBlock, more bool, err error) {
	size := 0
	for {
		page, err := next(index, windowPage)
		if err != nil {
			return nil, false, err
		}
		for _, b := range page {
			size += len(b.Log)
			if len(blocks) == r.limit || len(blocks) > 0 && size > windowBytes {
				return blocks, true, nil
			}
			blocks, index = append(blocks, b), b.Index
		}
		if len(page) < windowPage {
			return blocks, false, nil
		}
	}
}

// SearchStageLog finds a text in a stage's log. The work of a call is bounded; the next call goes
// on where it ended.
func (s *controlService) SearchStageLog(ctx context.Context, req *controlv1.SearchStageLogRequest) (*controlv1.SearchStageLogResponse, error) {
	d, stage, err := s.stageOf(ctx, req.DeploymentId, req.StageId)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.SearchStageLogResponse{StageId: text(stage.ID), SearchedIndex: -1}
	if req.AfterIndex != nil {
		resp.SearchedIndex = *req.AfterIndex
	}
	wanted, limit := strings.ToLower(req.Text), min(int(cmp.Or(req.Limit, logMatches)), maxItems)
	for blocks, size := 0, 0; blocks < searchedBlocks && size < searchedBytes; blocks += searchedPage {
		page, err := s.store.StageLogAfter(ctx, d.ID, stage.ID, resp.SearchedIndex, searchedPage)
		if err != nil {
			return nil, err
		}
		for _, b := range page {
			size += len(b.Log)
			resp.SearchedIndex = b.Index
			if m := find(b, wanted); m != nil {
				resp.Matches = append(resp.Matches, m)
			}
			if len(resp.Matches) == limit {
				resp.More = true
				return resp, nil
			}
		}
		if len(page) < searchedPage {
			return resp, nil
		}
	}
	resp.More = true
	return resp, nil
}

// find returns the first line of a block that has a text in lower case; nil if none has.
func find(b deploy.LogBlock, wanted string) *controlv1.StageLogMatch {
	log := ansi.Strip(text(b.Log))
	lower := strings.ToLower(log) // has as many characters, not as many bytes
	at := strings.Index(lower, wanted)
	if at < 0 {
		return nil
	}
	return &controlv1.StageLogMatch{
		Index: b.Index, Line: b.Index + 1, Text: excerptAt([]rune(log), utf8.RuneCountInString(lower[:at])),
		Severity: modelv1.LogSeverity(modelv1.LogSeverity_value[string(b.Severity)]), CreatedAtMs: millis(b.At),
		Warning: strings.HasPrefix(log, "Warning: "),
	}
}

// excerptAt returns the line of a text with a position, or the part of a long line around it.
func excerptAt(log []rune, at int) string {
	begin, end := at, at
	for begin > 0 && log[begin-1] != '\n' {
		begin--
	}
	for end < len(log) && log[end] != '\n' {
		end++
	}
	var before, after string
	if end-begin > excerpt {
		if at-begin > excerptBefore {
			begin, before = at-excerptBefore, "…"
		}
		if end-begin > excerpt {
			end, after = begin+excerpt, "…"
		}
	}
	return before + strings.TrimRight(string(log[begin:end]), "\r") + after
}
