package plan

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// definition defaults and validates objects of a kind as the API server does.
type definition struct {
	specs.Kind
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func newDefinition(kind specs.Kind) (definition, error) {
	d := definition{Kind: kind}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&kind.Schema, &internal, nil); err != nil {
		return d, fmt.Errorf("converting the schema of %s: %w", kind.Name, err)
	}
	var err error
	if d.structural, err = structuralschema.NewStructural(&internal); err != nil {
		return d, fmt.Errorf("reading the schema of %s: %w", kind.Name, err)
	}
	if d.schema, _, err = validation.NewSchemaValidator(&internal); err != nil {
		return d, fmt.Errorf("compiling the schema of %s: %w", kind.Name, err)
	}
	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
	return d, nil
}

// accept defaults an object in place. It fails if the API server would refuse the object.
func (d definition) accept(ctx context.Context, object, old map[string]any) error {
	defaulting.Default(object, d.structural)
	if errs := validation.ValidateCustomResource(nil, object, d.schema); len(errs) > 0 {
		return errs.ToAggregate()
	}
	var before any
	if old != nil {
		before = old
	}
	errs, _ := d.rules.Validate(ctx, field.NewPath(""), d.structural, object, before, celconfig.RuntimeCELCostBudget)
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}
