// Command terraform-provider-sample is a provider for the tests and the demo: its resource is a
// file of this machine, which can be slow, fail, or be changed by others.
package main

import (
	"context"
	"log"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func main() {
	if err := providerserver.Serve(context.Background(), func() provider.Provider { return sample{} }, providerserver.ServeOpts{Address: "example.com/piped/sample"}); err != nil {
		log.Fatal(err)
	}
}

type sample struct{}

func (sample) Metadata(_ context.Context, _ provider.MetadataRequest, out *provider.MetadataResponse) {
	out.TypeName = "sample"
}
func (sample) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse)          {}
func (sample) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}
func (sample) DataSources(context.Context) []func() datasource.DataSource                        { return nil }
func (sample) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return file{} }}
}

// file is the resource sample_file.
type file struct{}

type model struct {
	Path    types.String `tfsdk:"path"`
	Content types.String `tfsdk:"content"`
	Secret  types.String `tfsdk:"secret"`
	Delay   types.String `tfsdk:"delay"`
	Journal types.String `tfsdk:"journal"`
	ID      types.String `tfsdk:"id"`
}

func (file) Metadata(_ context.Context, _ resource.MetadataRequest, out *resource.MetadataResponse) {
	out.TypeName = "sample_file"
}

func (file) Schema(_ context.Context, _ resource.SchemaRequest, out *resource.SchemaResponse) {
	out.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"path":    schema.StringAttribute{Required: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
		"content": schema.StringAttribute{Required: true, Description: "a file whose content has the word poison cannot be written"},
		"secret":  schema.StringAttribute{Optional: true, Sensitive: true},
		"delay":   schema.StringAttribute{Optional: true, Description: "how long a write takes, such as 2s"},
		"journal": schema.StringAttribute{Optional: true, Description: "a file to which each write appends a line; a write waits as long as nothing reads a pipe"},
		"id":      schema.StringAttribute{Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}},
	}}
}

func (file) Create(ctx context.Context, in resource.CreateRequest, out *resource.CreateResponse) {
	var m model
	out.Diagnostics.Append(in.Plan.Get(ctx, &m)...)
	if err := m.write(ctx); err != nil {
		out.Diagnostics.AddError("cannot write the file", err.Error())
		return
	}
	m.ID = m.Path
	out.Diagnostics.Append(out.State.Set(ctx, m)...)
}

func (file) Read(ctx context.Context, in resource.ReadRequest, out *resource.ReadResponse) {
	var m model
	out.Diagnostics.Append(in.State.Get(ctx, &m)...)
	data, err := os.ReadFile(m.Path.ValueString())
	if os.IsNotExist(err) {
		out.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		out.Diagnostics.AddError("cannot read the file", err.Error())
		return
	}
	m.Content = types.StringValue(string(data))
	out.Diagnostics.Append(out.State.Set(ctx, m)...)
}

func (file) Update(ctx context.Context, in resource.UpdateRequest, out *resource.UpdateResponse) {
	var m model
	out.Diagnostics.Append(in.Plan.Get(ctx, &m)...)
	if err := m.write(ctx); err != nil {
		out.Diagnostics.AddError("cannot write the file", err.Error())
		return
	}
	out.Diagnostics.Append(out.State.Set(ctx, m)...)
}

func (file) Delete(ctx context.Context, in resource.DeleteRequest, out *resource.DeleteResponse) {
	var m model
	out.Diagnostics.Append(in.State.Get(ctx, &m)...)
	if err := os.Remove(m.Path.ValueString()); err != nil && !os.IsNotExist(err) {
		out.Diagnostics.AddError("cannot remove the file", err.Error())
	}
}

// write writes the file after the delay.
func (m model) write(ctx context.Context) error {
	if m.Delay.ValueString() != "" {
		delay, err := time.ParseDuration(m.Delay.ValueString())
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
	if strings.Contains(m.Content.ValueString(), "poison") {
		return os.ErrInvalid
	}
	if journal := m.Journal.ValueString(); journal != "" {
		if err := note(ctx, journal, m.Path.ValueString()); err != nil {
			return err
		}
	}
	return os.WriteFile(m.Path.ValueString(), []byte(m.Content.ValueString()), 0o600)
}

// note appends a line to a journal, unless it is interrupted while it waits for something that reads
// the journal. It begins with a file that says so.
func note(ctx context.Context, journal, line string) error {
	if err := os.WriteFile(journal+".began", nil, 0o600); err != nil {
		return err
	}
	type opened struct {
		file *os.File
		err  error
	}
	open := make(chan opened, 1)
	go func() {
		f, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		open <- opened{f, err}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case o := <-open:
		if o.err != nil {
			return o.err
		}
		defer o.file.Close()
		_, err := o.file.WriteString(line + "\n")
		return err
	}
}
