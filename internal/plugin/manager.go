package plugin

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managerLabels select the Deployment of the manager, and managerLabel its pods, as it is installed by config/default
// and by the chart.
const (
	managerLabel  = "control-plane=controller-manager"
	managerLabels = managerLabel + ",app.kubernetes.io/name=fixpoint"
	// managerNamespace is where a user who may not list all Deployments looks.
	managerNamespace = "fixpoint-system"
	managerContainer = "manager"
)

// managers lists the Deployments of managers. The note says what the user may not read.
func (c *clients) managers(ctx context.Context) (found []appsv1.Deployment, note string, err error) {
	selector, err := labels.Parse(managerLabels)
	if err != nil {
		return nil, "", err
	}
	list := func(namespace string) error {
		return c.listEach(ctx, &appsv1.DeploymentList{}, func(live client.Object) {
			if deployment, ok := live.(*appsv1.Deployment); ok {
				found = append(found, *deployment)
			}
		}, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	}
	if err = list(""); apierrors.IsForbidden(err) {
		err = list(managerNamespace)
	}
	if apierrors.IsForbidden(err) {
		return nil, "you may not read the Deployment of the manager", nil
	}
	return found, "", err
}

// availableManagers is how many replicas of managers are available; -1 if it is not known.
func (c *clients) availableManagers(ctx context.Context) int32 {
	found, note, err := c.managers(ctx)
	if note != "" || err != nil {
		return -1
	}
	var available int32
	for i := range found {
		available += found[i].Status.AvailableReplicas
	}
	return available
}

// managerFlags are the flags of the manager in a Deployment, by name and with the environment expanded. As in the manager,
// the last value of a flag is valid.
func managerFlags(d *appsv1.Deployment) map[string]string {
	flags := map[string]string{"pod-namespace": d.Namespace}
	for i := range d.Spec.Template.Spec.Containers {
		container := &d.Spec.Template.Spec.Containers[i]
		if container.Name != managerContainer {
			continue
		}
		for args := container.Args; len(args) > 0; {
			var name, value string
			name, value, args = nextFlag(args)
			flags[name] = expand(value, container.Env, d.Namespace)
		}
	}
	return flags
}

// nextFlag is the first flag of arguments, and the arguments after it. It need not know which flags are boolean, although
// these take no second argument: the manager would refuse one that follows.
func nextFlag(args []string) (name, value string, rest []string) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	switch rest = args[1:]; {
	case hasValue:
		return name, value, rest
	case len(rest) > 0 && !strings.HasPrefix(rest[0], "-"):
		return name, rest[0], rest[1:]
	default:
		return name, "true", rest
	}
}

// expand replaces references to environment variables, as the kubelet does in arguments.
func expand(value string, env []corev1.EnvVar, namespace string) string {
	for _, variable := range env {
		is := variable.Value
		if from := variable.ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace" {
			is = namespace
		}
		value = strings.ReplaceAll(value, "$("+variable.Name+")", is)
	}
	return value
}
